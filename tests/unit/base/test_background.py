"""A background process gives way to all others, and ends with its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

GIVES_WAY = """
import json, os
from pathlib import Path
from emberkeep.base.processes.background import give_way
give_way()
own = Path("/proc/self")
print(json.dumps([
    os.getpriority(os.PRIO_PROCESS, 0),
    os.sched_getscheduler(0),
    int((own / "oom_score_adj").read_text()),
    (own / "autogroup").read_text().split()[1:] if (own / "autogroup").exists() else None,
]))
"""

# The parent ends as soon as its child is bound to it.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-P", "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
os._exit(0)
"""
CHILD = """
import signal, sys
from emberkeep.base.processes.background import end_with_parent
signal.signal(signal.SIGTERM, lambda *_: sys.exit(sys.stderr.write("told to end\\n") and 1))
end_with_parent(int(sys.argv[1]))
print("bound", flush=True)
signal.pause()
"""


def python(*words: str, own_session: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python to the end of all that it has started: they share its standard error."""
    return subprocess.run(
        [sys.executable, "-P", "-c", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        start_new_session=own_session,
    )


def group() -> list[str] | None:
    """The priority of this session, where sessions have one."""
    file = Path("/proc/self/autogroup")
    return file.read_text().split()[1:] if file.exists() else None


def test_it_gets_what_no_other_process_wants() -> None:
    before = group()
    done = python(GIVES_WAY, own_session=True)
    lowest = None if before is None else ["nice", "19"]
    assert json.loads(done.stdout) == [19, os.SCHED_IDLE, 1000, lowest], done.stderr


def test_it_leaves_others_in_its_session_their_priority() -> None:
    before = group()
    done = python(GIVES_WAY)
    assert json.loads(done.stdout) == [19, os.SCHED_IDLE, 1000, before], done.stderr
    assert group() == before


def test_it_is_asked_to_end_when_its_parent_has_ended() -> None:
    done = python(PARENT, CHILD, own_session=True)  # supervisors reap orphans of other sessions only
    assert (done.stdout, done.stderr) == ("bound\n", "told to end\n")


def test_it_does_not_begin_without_its_parent() -> None:
    done = python(CHILD, "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "process 1, which has started this one, has ended\n"
