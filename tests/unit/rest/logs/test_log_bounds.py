"""The task manager bounds the output of processes that run, in real files; readers go on."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.files.hostile import open_to_free
from emberkeep.base.ids import JobId
from emberkeep.log_records.model import Selection
from emberkeep.log_records.scan import MOST_FOUND_BYTES, Search
from emberkeep.rest.logs import bounding
from emberkeep.rest.logs.bounding import LogBounds
from emberkeep.rest.ports import LogEntry, LogQuery, LogSearch
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.rest.serving.log_reader import LogReader
from tests.support.kept_logs.pieces import JOB, key
from tests.unit.rest.logs.test_log_shipping import Site

MOST = 1024**2
LINE = 100
LOG = f"{JOB}-1-driver.stdout"


class Output:
    """A driver that has printed numbered lines, each of LINE bytes."""

    def __init__(self, root: Path) -> None:
        directory = WorkingDirectory(root / "tm")
        self.path = directory.attempt_logs(JOB, 1) / "driver.stdout"
        self.path.parent.mkdir(parents=True)
        self.lines = 0
        self.stored = 0
        self.live: set[JobId] = {JOB}
        self.catalogue = TaskManagerLogs(directory, lambda *_: JOB in self.live)
        self.reader = LogReader(self.catalogue, time.monotonic)

    def bounds(self) -> LogBounds:
        return LogBounds(self.catalogue, MOST, lambda: self.live, self.how_much_is_stored)

    def how_much_is_stored(self, _: LogEntry) -> int:
        return self.stored

    def prints(self, count: int) -> None:
        with self.path.open("ab") as file:
            for _ in range(count):
                self.lines += 1
                file.write(b"line %-94d\n" % self.lines)
            os.fsync(file.fileno())

    @property
    def used(self) -> int:
        return self.path.stat().st_blocks * 512

    async def read(self, offset: int = 0) -> tuple[bytes, list[int]]:
        """Read as a client does. Return all bytes, and the offsets at which replies did not follow the last one."""
        found: list[bytes] = []
        jumps: list[int] = []
        while True:
            chunk = await self.reader.read(LOG, LogQuery(offset=offset, limit=300_000, wait=0.0))
            if not chunk.data:
                return b"".join(found), jumps
            if chunk.offset != offset:
                jumps.append(chunk.offset)
            found.append(chunk.data)
            offset = chunk.end


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


async def test_the_output_of_a_running_process_is_bounded(output: Output) -> None:
    bounds = output.bounds()
    for _ in range(30):
        output.prints(5_000)
        await bounds.look()
        assert output.used <= MOST

    data, jumps = await output.read()
    lines = data.splitlines()

    assert lines[0].split() == [b"line", b"1"]
    assert lines[-1].split() == [b"line", b"150000"]
    assert b"\0" not in data
    [note] = [line for line in lines if line.startswith(b"--- Emberkeep")]
    kept = len(data) - len(note) - len("\n\n")  # the note ends the line before it
    assert kept + int(note.split()[2]) == output.lines * LINE
    assert len(jumps) == 1


async def test_a_follower_goes_on_after_the_freed_bytes(output: Output) -> None:
    output.prints(5_000)
    chunk = await output.reader.read(LOG, LogQuery(offset=0, limit=400_000, wait=0.0))
    output.prints(20_000)
    await output.bounds().look()

    data, jumps = await output.read(chunk.end)

    assert data.startswith((b"--- Emberkeep: ", b"\n--- Emberkeep: "))
    assert data.splitlines()[-1].split() == [b"line", b"25000"]
    assert len(jumps) == 1


async def test_searches_pass_over_what_was_freed(output: Output) -> None:
    output.prints(200_000)
    await output.bounds().look()
    size = output.path.stat().st_size

    async def search(text: str, *, backwards: bool) -> tuple[list[bytes], int]:
        offset, steps, found = size if backwards else 0, 0, []
        while True:
            wanted = Search(
                selection=Selection(texts=(text,)),
                offset=offset,
                limit=100,
                most_bytes=MOST_FOUND_BYTES,
                backwards=backwards,
            )
            result = await output.reader.search(LOG, LogSearch(search=wanted))
            found += [record.data.split()[1] for record in result.found.records if record.data.startswith(b"line")]
            steps += 1
            offset = result.found.start if backwards else result.end
            if offset == (0 if backwards else size):
                return found, steps

    for backwards in (False, True):
        assert (await search("line 199999 ", backwards=backwards))[0] == [b"199999"]
        found, steps = await search("line 7 ", backwards=backwards)
        assert (found, steps <= 4) == ([b"7"], True)
        assert (await search("line 100000 ", backwards=backwards))[0] == []


async def test_what_is_not_stored_elsewhere_is_freed_last(output: Output) -> None:
    bounds = output.bounds()
    output.prints(8_500)
    await bounds.look()
    assert output.used >= 8_500 * LINE

    output.stored = 400_000
    await bounds.look()

    assert output.used < 8_500 * LINE
    assert "line 4500 " in (await output.read())[0].decode()


async def test_a_process_that_has_ended_is_looked_at_once_more(output: Output) -> None:
    bounds = output.bounds()
    await bounds.look()
    output.prints(50_000)
    output.live.clear()

    await bounds.look()

    assert output.used <= MOST


async def test_a_file_system_without_holes_is_reported_once_and_left_as_it_is(output: Output) -> None:
    def refuse(descriptor: int, start: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    output.prints(50_000)
    bounds = LogBounds(output.catalogue, MOST, lambda: output.live, output.how_much_is_stored, free=refuse)
    with capture_logs() as logs:
        await bounds.look()
        await bounds.look()

    assert [entry["event"] for entry in logs] == [
        "the output of jobs is not bounded: the file system of its files cannot free parts of them"
    ]
    assert output.used >= 50_000 * LINE


async def test_an_output_that_cannot_be_opened_does_not_free_the_others_from_their_bound(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.prints(50_000)
    other = output.path.with_name("driver.stderr")
    other.write_bytes(b"x" * MOST)

    def failing(path: Path) -> int:
        if path == other:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_to_free(path)

    monkeypatch.setattr(bounding, "open_to_free", failing)

    await output.bounds().look()

    assert output.used <= MOST


async def test_an_attempt_that_cannot_be_read_does_not_free_the_others_from_their_bound(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.prints(50_000)
    other, scan = output.path.parent.with_name("2"), os.scandir
    other.mkdir()

    def failing(path: Path) -> Any:
        if path == other:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)

    with capture_logs() as logs:
        await output.bounds().look()

    assert output.used <= MOST
    assert [line["reason"] for line in logs if "reason" in line] == ["[Errno 5] Input/output error"]


async def test_a_link_in_the_place_of_an_output_is_not_followed(output: Output, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 4 * MOST)
    output.path.symlink_to(other)

    await output.bounds().look()

    assert other.stat().st_blocks * 512 >= 4 * MOST


async def test_freed_bytes_are_passed_over_when_logs_are_copied(output: Output, tmp_path: Path) -> None:
    """What is stored is the log without the freed bytes, at the same offsets; never zeros in their place."""
    site = Site(tmp_path)  # its task manager is the one that has printed this
    output.prints(5_000)
    site.live = {f"{JOB}-1-"}
    assert await site.shipping.send_all()
    output.prints(45_000)
    await output.bounds().look()
    output.prints(1)

    assert await site.shipping.send_all()
    kept = await site.leader.kept(key("driver.stdout"))
    site.shipping.close()

    assert b"\0" not in kept
    lines = kept.splitlines()
    assert lines[0].split() == [b"line", b"1"]
    assert lines[-1].split() == [b"line", b"50001"]
    [note] = [line for line in lines if line.startswith(b"--- Emberkeep")]
    assert len(kept) - len(note) - 1 + int(note.split()[2]) == output.lines * LINE
