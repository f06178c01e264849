"""The search for leftovers finds them: without this, "nothing is left" would prove nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emberkeep.base.processes.process_identity import identify
from tests.integration.conditions import until
from tests.integration.leaks import Seen, Traces

pytestmark = pytest.mark.integration

LISTENS = """
import socket, subprocess, sys, time
listener = socket.create_server(("127.0.0.1", 0))
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
print(listener.getsockname()[1], flush=True)
time.sleep(3600)
"""


@contextmanager
def listening(traces: Traces, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process of the run that listens on a port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENS, *arguments],
        env={**os.environ, **traces.environment()},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            traces.kill()


def test_a_process_that_has_left_its_session_is_found_and_can_be_ended(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    with listening(traces, "child") as (process, _):
        assert len(until(lambda: found if len(found := traces.processes()) == 2 else [], "both processes")) == 2
        process.kill()
        process.wait()
        with pytest.raises(AssertionError, match=r"(?s)processes are left:.*time\.sleep"):
            traces.check_nothing_left(seconds=0.2)
        traces.kill()
        traces.check_nothing_left()


def test_a_port_that_is_still_listened_on_is_found(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    with listening(traces) as (process, port):
        traces.look()
        assert f"127.0.0.1:{port}" in traces.ports
        process.kill()
        process.wait()
        traces.check_nothing_left()
        # As if this process were one of the run.
        with socket.create_server(("127.0.0.1", port)):
            own = this_process()
            traces.seen[own.identity] = own
            with pytest.raises(AssertionError, match=f"127.0.0.1:{port} is listened on by {os.getpid()}"):
                traces.check_nothing_left()


def test_a_file_in_the_temporary_directory_is_found(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    traces.environment()
    traces.check_nothing_left()
    (traces.temporary / "librocksdbjni1234.so").touch()
    with pytest.raises(AssertionError, match="librocksdbjni1234"):
        traces.check_nothing_left()


def test_a_trial_of_the_temporary_directory_by_a_killed_process_is_no_leak(tmp_path: Path) -> None:
    traces = Traces(tmp_path)
    traces.environment()
    trial = traces.temporary / "4ju2_5vg"
    for written in (b"", b"blat"):
        trial.write_bytes(written)
        traces.check_nothing_left()
    trial.write_bytes(b"data")
    with pytest.raises(AssertionError, match="4ju2_5vg"):
        traces.check_nothing_left()


def this_process() -> Seen:
    identity = identify(os.getpid())
    assert identity is not None
    return Seen(identity, ("pytest",))
