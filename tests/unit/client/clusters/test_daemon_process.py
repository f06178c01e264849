"""Daemons that outlive the command that started them."""

import subprocess
import sys

PROGRAM = """
import subprocess
import sys
from pathlib import Path
from emberkeep.base.processes.process_identity import identify
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand

# It ends when the test closes its input.
command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
process = subprocess.Popen(command, stdin=sys.stdin, start_new_session=True)
Daemon(DaemonCommand("any", (), Path("logs")), process, identify(process.pid)).outlive()
"""


def test_who_leaves_a_daemon_running_says_nothing_of_it() -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.wait(120) == 0, "the daemon goes on until its input ends"
        assert starting.stdin is not None
        starting.stdin.close()
        assert starting.stderr is not None
        assert starting.stderr.read() == ""
