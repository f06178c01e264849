"""A script's standard streams may be pipes whose reader hangs: the driver ends nevertheless, and says so if it can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RUNNER = """
import os, sys
from emberkeep.base.processes import standard_streams
from emberkeep.spark.script.runner import run_script

standard_streams._SECONDS = 0.5
outcome = run_script(sys.argv[1], [])
os.write(1, f"{outcome.exit_code} {outcome.kind.value} {outcome.message}".encode())
os._exit(outcome.exit_code)
"""
# The pipe is full, and what is still in the buffer of Python finds no room.
_FULL = """
import os, sys
reading, writing = os.pipe()
os.set_blocking(writing, False)
try:
    while True:
        os.write(writing, bytes(4096))
except BlockingIOError:
    os.set_blocking(writing, True)
sys.{stream} = open(writing, "w")
sys.{stream}.write("some words")
"""


def run(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    (directory / "job.py").write_text(script)
    command = [sys.executable, "-c", _RUNNER, "job.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=directory)


def test_a_script_whose_output_hangs_has_succeeded_nevertheless(tmp_path: Path) -> None:
    done = run(tmp_path, _FULL.format(stream="stdout"))
    assert (done.returncode, done.stdout) == (0, "0 finished None")
    assert "emberkeep: standard output was not written within 0 s and may be incomplete" in done.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_exit_of_a_script_whose_output_hangs_is_known(tmp_path: Path, stream: str) -> None:
    done = run(tmp_path, _FULL.format(stream=stream) + "sys.exit('no such table')\n")
    assert (done.returncode, done.stdout) == (1, "1 exited no such table")


def test_a_thread_that_hangs_in_the_output_does_not_keep_the_script_from_its_end(tmp_path: Path) -> None:
    """It holds the lock of the stream."""
    script = _FULL.format(stream="stdout") + (
        "import threading\n"
        "thread = threading.Thread(target=sys.stdout.flush, daemon=True)\n"
        "thread.start()\n"
        "thread.join(0.5)\n"
        "raise ValueError('no such table')\n"
    )
    done = run(tmp_path, script)
    assert (done.returncode, done.stdout) == (1, "1 raised no such table")
    assert "ValueError: no such table" in done.stderr
    assert done.stderr.count("was not written within") == 1, "nobody waits for it again"


# A signal interrupts the script in a write to a pipe that is full for the moment: this thread holds the stream's lock.
_INTERRUPTED = """
import functools, os, signal, sys, threading, time
from emberkeep.base.processes import standard_streams

standard_streams._SECONDS, standard_streams._SECONDS_IN_HANDLER = 20.0, 0.2
reading, writing = os.pipe()
sys.stderr = piped = open(writing, "w")
received, waits = bytearray(), []

def read():
    while data := os.read(reading, 65536):
        received.extend(data)

def handle(number, frame):
    signal.signal(number, signal.SIG_IGN)  # as many do
    began = time.monotonic()
    standard_streams.say("words of the handler")
    waits.append(time.monotonic() - began)
    reader.start()

reader = threading.Thread(target=read)
signal.signal(signal.SIGALRM, <handler>)
signal.setitimer(signal.ITIMER_REAL, 0.2)
piped.write("x" * 1_000_000)
piped.flush()
for thread in threading.enumerate():
    if thread.name == "emberkeep-output":
        thread.join()
is_there = sys.stderr is piped
piped.close()
reader.join()
print(waits[0] < 10, is_there, received.count(b"x"), received[-21:].decode())
"""


@pytest.mark.parametrize("handler", ["handle", "lambda *both: handle(*both)", "functools.partial(handle)"])
def test_a_signal_handler_that_interrupts_output_does_not_wait_for_its_own_thread(handler: str) -> None:
    command = [sys.executable, "-c", _INTERRUPTED.replace("<handler>", handler)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "True True 1000000 words of the handler\n\n", done.stderr
