"""Standard streams that are closed, non-blocking, or cannot encode what the command prints."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading

import pytest

from emberkeep.cli.exit_codes import ExitCode, ended
from emberkeep.cli.messages import print_line, write_bytes

_MAIN = f"{sys.executable} -m emberkeep.cli.main"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)


def test_a_command_whose_output_nobody_wants_succeeds() -> None:
    result = shell(f"{_MAIN} version <&- >&-")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["version", "completion bash"])
def test_output_for_which_there_is_no_room_is_told_with_the_reason(words: str, unbuffered: str) -> None:
    result = shell(f"PYTHONUNBUFFERED={unbuffered} {_MAIN} {words} >/dev/full")
    assert result.returncode == ExitCode.FAILED
    first, hint = result.stderr.splitlines()
    assert first == "emberkeep: cannot write the output: No space left on device"
    assert hint == "  hint: check free space and quota where it goes"


def test_messages_do_not_get_among_the_results() -> None:
    result = shell(f"{_MAIN} no-such-command 2>&-")
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")


def test_a_character_that_cannot_be_encoded_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, "latin-1", write_through=True))

    def run() -> int:
        print_line("Zähler …")
        return ExitCode.OK

    assert ended(run, lambda _: ExitCode.FAILED) == ExitCode.OK
    assert output.getvalue() == "Zähler \\u2026\n".encode("latin-1")


def test_a_full_pipe_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = os.urandom(500_000)
    received = bytearray()

    def read() -> None:
        while chunk := os.read(reading, 10_000):
            received.extend(chunk)

    reader = threading.Thread(target=read)
    with os.fdopen(writing, "w") as stream:
        filled = 0
        try:
            while True:
                filled += os.write(writing, bytes(4096))
        except BlockingIOError:
            reader.start()
        write_bytes(stream, data)
    reader.join()
    os.close(reading)
    assert bytes(received[filled:]) == data
