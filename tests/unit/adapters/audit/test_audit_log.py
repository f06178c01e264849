"""The audit log on disk: complete, bounded, private, inert, without secrets, and never in the way of a request."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.audit import log as log_module
from emberkeep.adapters.audit.files import NAME, AuditFiles
from emberkeep.adapters.audit.log import AuditLog
from emberkeep.audit.entry import FORMAT, Entry, Outcome, decode, encode, moment_of
from emberkeep.audit.selection import Selection
from emberkeep.base.errors import Fatal
from emberkeep.base.request_context import Login
from tests.unit.rest.server import eventually

pytestmark = pytest.mark.req("SEC-15")

NOW_MS = 1_795_000_000_000


def entry(number: int = 0, *, identity: str = "alice", outcome: Outcome = Outcome.DONE, **target: str) -> Entry:
    return Entry(
        identity=identity,
        role="operator",
        login=Login.TOKEN,
        address="10.0.0.1",
        action="PATCH /v1/jobs/{jobid}",
        target=target or {"jobid": f"{number:032x}"},
        status=202,
        outcome=outcome,
    )


class Ticking:
    """A wall clock that advances by a second with each entry."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        self.now_ms += 1000
        return self.now_ms


@asynccontextmanager
async def opened(
    directory: Path, *, max_size: int = 1024**2, rotated: int = 3, files: AuditFiles | None = None
) -> AsyncIterator[AuditLog]:
    audit = AuditLog(files or AuditFiles(directory, max_size, rotated), Ticking())
    audit.open()
    try:
        yield audit
    finally:
        await audit.close()


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / NAME).read_text().splitlines()]


async def numbers(audit: AuditLog, selection: Selection) -> list[int]:
    return [int(found.target["jobid"], 16) for found in (await audit.read(selection)).entries]


async def test_a_line_says_who_did_what_to_what_from_where_and_how_it_ended(tmp_path: Path) -> None:
    async with opened(tmp_path) as audit:
        audit.record(entry(7))
    (line,) = lines(tmp_path)
    assert line["version"] == FORMAT
    assert str(line["time"]).startswith("2026-11-18T11:06:4")
    assert (line["identity"], line["role"], line["login"], line["address"]) == (
        "alice",
        "operator",
        "token",
        "10.0.0.1",
    )
    assert (line["action"], line["target"]) == ("PATCH /v1/jobs/{jobid}", {"jobid": f"{7:032x}"})
    assert (line["status"], line["outcome"], line["count"]) == (202, "done", 1)


async def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "audit", max_size=500) as audit:
        for number in range(10):
            audit.record(entry(number))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "audit").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700


async def test_secrets_and_control_characters_are_not_in_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as audit:
        audit.record(
            entry(path="x\x1b]0;evil\x07\n\x9b", token="abcdefghijk", note="Bearer abcdefghijk", long="x" * 9999)
        )
    text = (tmp_path / NAME).read_text()
    assert "abcdefghijk" not in text
    assert text.count("\n") == 1
    assert not [char for char in text[:-1] if not char.isprintable()]
    assert len(text) < 2000
    assert "\x1b" not in str(lines(tmp_path)[0]["target"])


def test_files_are_rotated_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    size = len(encode(entry(1)))
    files = AuditFiles(tmp_path, size * 3, 2)
    for number in range(50):
        files.append(encode(entry(number)))
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, f"{NAME}.1", f"{NAME}.2"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) == size * 3
    assert [decode(line) for line in files.lines()] == [entry(number) for number in range(49, 41, -1)]


async def test_pages_have_every_entry_once_across_files(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path, 2000, 99)
    for number in range(100):
        files.append(encode(msgspec.structs.replace(entry(number), id=f"{NOW_MS + number:013d}-000000")))
    files.close()
    async with opened(tmp_path, files=files) as audit:
        found, before = [], ""
        for _ in itertools.repeat(None, 200):
            page = await audit.read(Selection(limit=7, before=before))
            found += [int(one.target["jobid"], 16) for one in page.entries]
            before = page.next
            if not before:
                break
    assert found == list(range(99, -1, -1))


async def test_a_page_that_reads_too_much_ends_early_and_says_where_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_MOST_SCANNED", 3000)
    async with opened(tmp_path) as audit:
        audit.record(entry(1, identity="bob"))
        for number in range(100):
            audit.record(entry(number))
    async with opened(tmp_path) as audit:
        pages, selection = 0, Selection(identity="bob")
        while not (page := await audit.read(selection)).entries:
            pages, selection = pages + 1, Selection(identity="bob", before=page.next)
            assert page.next
    assert pages > 3
    assert page.entries[0].identity == "bob"


async def test_entries_are_selected_by_time_identity_job_and_outcome(tmp_path: Path) -> None:
    async with opened(tmp_path) as audit:
        audit.record(entry(1))
        audit.record(entry(2, identity="bob"))
        audit.record(entry(3, outcome=Outcome.FAILED))
    async with opened(tmp_path) as audit:
        assert await numbers(audit, Selection(identity="bob")) == [2]
        assert await numbers(audit, Selection(job=f"{1:032x}")) == [1]
        assert await numbers(audit, Selection(outcome="failed")) == [3]
        times = [moment_of(one.id) for one in (await audit.read(Selection())).entries]
        assert await numbers(audit, Selection(since_ms=times[1])) == [3, 2]
        assert await numbers(audit, Selection(until_ms=times[1])) == [2, 1]


async def test_ids_grow_across_restarts_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    for _ in range(2):  # the clock of each process starts at the same time
        async with opened(tmp_path) as audit:
            for number in range(3):
                audit.record(entry(number))
    ids = [str(line["id"]) for line in lines(tmp_path)]
    assert ids == sorted(set(ids))


async def test_ids_grow_even_if_the_clock_was_set_back_half_a_million_entries_ago(tmp_path: Path) -> None:
    newest = msgspec.structs.replace(entry(0), id=f"{NOW_MS + 86_400_000}-999998")
    (tmp_path / NAME).write_bytes(encode(newest))
    async with opened(tmp_path) as audit:
        for number in range(1, 4):
            audit.record(entry(number))
    async with opened(tmp_path) as audit:
        first = await audit.read(Selection(limit=2))
        assert await numbers(audit, Selection(before=first.next)) == [1, 0]
    ids = [str(line["id"]) for line in lines(tmp_path)]
    assert ids == sorted(set(ids))


async def test_a_line_that_a_crash_has_torn_is_skipped(tmp_path: Path) -> None:
    async with opened(tmp_path) as audit:
        audit.record(entry(1))
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"version":1,"time":"2026')
    async with opened(tmp_path) as audit:
        audit.record(entry(2))
    async with opened(tmp_path) as audit:
        assert await numbers(audit, Selection()) == [2, 1]


def test_entries_of_a_later_release_are_read(tmp_path: Path) -> None:
    line = {**msgspec.to_builtins(entry(1)), "version": 2, "added": [1], "outcome": "postponed"}
    assert decode(msgspec.json.encode(line)) is not None


class FullDisk(AuditFiles):
    """Files on a disk that is full while ``full`` is true."""

    full = False

    def append(self, lines: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(lines)


async def test_a_full_disk_stops_no_request_and_the_gap_is_told(tmp_path: Path) -> None:
    files = FullDisk(tmp_path, 1024**2, 3)
    async with opened(tmp_path, files=files) as audit:
        files.full = True
        for number in range(5):
            audit.record(entry(number))
        await eventually(lambda: audit.lost == 5)
        files.full = False
        audit.record(entry(6))
    gap, after = lines(tmp_path)
    assert (gap["action"], gap["outcome"], gap["count"]) == ("audit log", "failed", 5)
    assert after["target"] == {"jobid": f"{6:032x}"}


@pytest.mark.parametrize("in_one_ms", [False, True])
async def test_the_entry_about_a_gap_has_an_id_of_its_own(tmp_path: Path, in_one_ms: bool) -> None:
    """Pages and the copy in the shared storage continue after an id: two entries with one id would become one."""
    files = FullDisk(tmp_path, 1024**2, 3)
    now_ms = (lambda: NOW_MS) if in_one_ms else Ticking()
    audit = AuditLog(files, now_ms)
    audit.open()
    audit.record(entry(1))
    await eventually(lambda: (tmp_path / NAME).stat().st_size > 0)
    files.full = True
    audit.record(entry(2))
    await eventually(lambda: audit.lost == 1)
    files.full = False
    audit.record(entry(3))
    await audit.close()
    identifiers = [str(line["id"]) for line in lines(tmp_path)]
    assert len(set(identifiers)) == 3
    assert identifiers == sorted(identifiers)
    page = await audit.read(Selection(before=identifiers[-1]))
    assert page.entries[0].action == "audit log"


async def test_text_that_utf_8_cannot_encode_stops_no_entry(tmp_path: Path) -> None:
    odd = "caf\udce9"  # as in the name of a file whose bytes are not UTF-8
    async with opened(tmp_path) as audit:
        audit.record(msgspec.structs.replace(entry(name=odd), reason=odd, identity=odd, parameters={odd: odd}))
        audit.record(entry(2))
    first, second = lines(tmp_path)
    shown = "caf\\udce9"
    assert (first["reason"], first["identity"], first["target"]) == (shown, shown, {"name": shown})
    assert first["parameters"] == {shown: shown}
    assert second["target"] == {"jobid": f"{2:032x}"}


async def test_a_full_queue_loses_entries_instead_of_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MOST_QUEUED", 4)
    audit = AuditLog(AuditFiles(tmp_path, 1024**2, 3), Ticking())  # nothing writes yet
    for number in range(10):
        audit.record(entry(number))
    assert audit.lost == 6
    audit.open()
    await audit.close()
    assert [line["count"] for line in lines(tmp_path)] == [6, 1, 1, 1, 1]


def test_a_part_that_was_written_before_the_disk_was_full_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = AuditFiles(tmp_path, 1024**2, 3)
    files.append(encode(entry(1)))
    write = os.write

    def torn(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr("os.write", full)
        return write(descriptor, bytes(data)[:10])

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", torn)
    with pytest.raises(OSError, match="space"):
        files.append(encode(entry(2)))
    monkeypatch.undo()
    files.append(encode(entry(3)))
    assert [decode(line) for line in files.lines()] == [entry(3), entry(1)]
    files.close()


async def test_a_flood_of_refusals_takes_a_few_lines(tmp_path: Path) -> None:
    async with opened(tmp_path) as audit:
        for _ in range(10_000):
            audit.record(entry(outcome=Outcome.REFUSED))
    counts = [line["count"] for line in lines(tmp_path)]
    assert sum(int(str(count)) for count in counts) == 10_000
    assert len(counts) < 10


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Fatal, match="audit log"):
        AuditLog(AuditFiles(tmp_path / "audit", 100, 1), Ticking()).open()
    assert not (tmp_path / "elsewhere").exists()
