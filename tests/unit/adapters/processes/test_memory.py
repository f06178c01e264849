"""How much memory processes use, as the kernel says."""

from __future__ import annotations

import subprocess
import sys

from emberkeep.adapters.processes.memory import memory_mb

# Holds memory that its child shares, tells both pids, and waits until its input ends.
HOLDS = """
import os, sys
held = os.urandom(1 << 20) * 64
child = os.fork()
if child == 0:
    os.read(0, 1)
    os._exit(0)
print(os.getpid(), child, flush=True)
sys.stdin.read()
os.wait()
"""


def test_what_processes_share_counts_once_and_those_that_are_gone_use_none() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        both = memory_mb(pids)
        assert 64 <= both < 110
        assert memory_mb(pids[:1]) < 60, "it shares half of it"
        process.communicate()
    assert memory_mb(pids) == 0
