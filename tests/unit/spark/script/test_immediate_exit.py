"""What a script hands over when it ends its process by ``os._exit``. Each script runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_RUNNER = """
import os, signal, sys, threading
from emberkeep.spark.script.immediate_exit import immediate_exits

def leaving(code):
    print("leaving", code, flush=True)
    if "fails" in sys.argv:
        raise ValueError("planted")
    if "is told" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)

with immediate_exits(leaving):
    exec(sys.argv[1])
os._exit(9)
"""


def run(script: str, *arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", _RUNNER, script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout.splitlines()


def in_thread(name: str) -> str:
    return f"t = threading.Thread(target=os._exit, args=(3,), name={name!r})\nt.start()\nt.join()"


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("os._exit(0)", 0, ["leaving 0"]),
        ("os._exit(259)", 3, ["leaving 3"]),
        ("from os import _exit\ntry:\n    _exit(3)\nfinally:\n    print('never')", 3, ["leaving 3"]),
        (in_thread("Thread-1"), 3, ["leaving 3"]),
        (in_thread("emberkeep-state-gateway"), 3, []),  # one of our own: the attempt is lost
        ("if os.fork() == 0:\n    os._exit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))", 9, ["5"]),
        ("try:\n    os._exit('x')\nexcept TypeError:\n    print('refused')", 9, ["refused"]),
        ("pass", 9, []),
    ],
)
def test_an_exit_is_handed_over_before_the_process_ends(script: str, code: int, said: list[str]) -> None:
    assert run(script) == (code, said)


def test_what_goes_wrong_as_it_is_handed_over_does_not_keep_the_process() -> None:
    code, said = run("os._exit(3)", "fails")
    assert (code, said[0]) == (3, "leaving 3")
    handler = "signal.signal(signal.SIGTERM, lambda *_: os._exit(4))\nos._exit(3)"
    assert run(handler, "is told") == (4, ["leaving 3"])


def test_nothing_that_other_threads_run_into_meanwhile_is_shown() -> None:
    """As the JVM is ended, calls that wait for it fail: plain Python would have ended with them unseen."""
    script = (
        "import logging, time\n"
        "called, failed = threading.Event(), threading.Event()\n"
        "def call():\n"
        "    try:\n"
        "        called.wait()\n"
        "        logging.error('Error while sending or receiving')\n"
        "        raise ConnectionRefusedError\n"
        "    finally:\n"
        "        threading.Timer(0.2, failed.set).start()\n"
        "threading.Thread(target=call, daemon=True).start()\n"
        "sys.stderr.write('before')\n"
        "end = leaving\n"
        "def leaving(code):\n"
        "    end(code), called.set(), failed.wait()\n"
        "os._exit(3)"
    )
    runner = _RUNNER.replace("immediate_exits(leaving)", "immediate_exits(lambda code: leaving(code))")
    command = [sys.executable, "-c", runner.replace("exec(sys.argv[1])", "exec(sys.argv[1], globals())"), script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "leaving 3\n", "before")
