"""A job's files through the gateway: durable first, local where it is sound."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent, Fatal, InvalidInput, RetryLater, Unavailable, UnknownOutcome
from emberkeep.local_state.errors import Exists, IsADirectory
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller, FileKind, StatePath
from emberkeep.taskmanager.state_gateway import writes as state_gateway_writes
from tests.support.state_faults import FaultyCopies, disk_full
from tests.unit.taskmanager.state_gateway.state_gateways import (
    DRIVER_OF,
    EXECUTOR,
    JOB,
    OTHER,
    OTHER_SLOT,
    SLOT,
    UUID,
    Node,
)

CONTENT = bytes(range(256)) * 2560  # 655,360 bytes: three blocks of a copy


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_file_is_durable_and_local_when_it_is_acknowledged(node: Node) -> None:
    status = node.write("state/0/1/1.delta", CONTENT)
    assert (node.place / JOB / "state/0/1/1.delta").read_bytes() == CONTENT
    record = node.copies.find(node.path("state/0/1/1.delta"))
    assert record is not None
    assert (record.generation, record.allocation_id, record.attempt) == (status.generation, SLOT, 1)
    assert node.read("state/0/1/1.delta") == CONTENT
    assert node.read("state/0/1/1.delta", offset=200_000, length=300_000) == CONTENT[200_000:500_000]
    assert node.counts("hits", "misses", "local_read_bytes", "remote_read_bytes") == (2, 0, 955_360, 0)
    assert node.counts("written_bytes", "kept_bytes") == (655_360, 655_360)


def test_another_node_reads_the_durable_file_and_keeps_it(node: Node, tmp_path: Path) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    other = Node(tmp_path, "other")
    assert other.read("state/0/1/1.delta", offset=100, length=100) == CONTENT[100:200]  # a part is not kept
    assert other.copies.records() == ()
    assert other.read("state/0/1/1.delta") == CONTENT
    assert other.read("state/0/1/1.delta") == CONTENT
    assert other.counts("hits", "misses", "remote_read_bytes") == (1, 2, 655_460)


@pytest.mark.req("LOC-7")
@pytest.mark.parametrize(
    "damage",
    [
        lambda copies, path: copies.flip(path, 300_000),
        lambda copies, path: copies.flip(path, 0),
        lambda copies, path: copies.cut(path, 655_359),
        lambda copies, path: copies.cut(path, 262_144),
        lambda copies, path: copies.cut(path, 0),
    ],
)
@pytest.mark.parametrize(("offset", "length"), [(0, None), (200_000, 400_000)])
def test_a_damaged_copy_costs_time_only(
    node: Node, damage: Callable[[FaultyCopies, StatePath], None], offset: int, length: int | None
) -> None:
    for name in ("state/0/1/1.delta", f"state/0/1/{UUID}.sst"):
        node.write(name, CONTENT)
        before = node.counts("verify_failures")[0]
        damage(node.copies, node.path(name))
        wanted = CONTENT[offset:] if length is None else CONTENT[offset : offset + length]
        assert node.read(name, offset=offset, length=length) == wanted
        assert node.copies.find(node.path(name)) is None
        assert node.counts("verify_failures")[0] == before + 1
        for _ in range(2):
            assert node.read(name) == CONTENT
        assert node.copies.find(node.path(name)) is not None


@pytest.mark.req("LOC-7")
def test_a_copy_of_bytes_that_were_replaced_elsewhere_is_stale(node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path, "other")
    node.write("state/0/1/1.delta", CONTENT)
    other.write("state/0/1/1.delta", b"another")
    assert node.read("state/0/1/1.delta") == b"another"
    assert node.counts("stale", "hits", "misses") == (1, 0, 1)
    other.gateway.delete(EXECUTOR, other.path("state/0/1/1.delta"), recursive=False)
    with pytest.raises(Absent):
        node.read("state/0/1/1.delta")
    assert node.copies.records() == ()


def test_names_made_for_their_bytes_cost_no_request(node: Node) -> None:
    name = f"state/0/1/SSTs/000009-{UUID}.sst"
    written = node.write(name, CONTENT)
    node.gateway = node.restarted_gateway()
    node.gateway.admit(EXECUTOR)
    node.durable.calls.clear()
    assert node.gateway.status(EXECUTOR, node.path(name)) == written
    assert node.gateway.look_for(EXECUTOR, node.path(name)) == ""
    assert node.read(name) == CONTENT
    assert node.durable.calls == []


@pytest.mark.req("LOC-2")
def test_the_status_of_a_copy_is_that_of_the_durable_file(node: Node, tmp_path: Path) -> None:
    name, temporary = f"state/0/1/SSTs/000009-{UUID}.sst", f"state/0/1/.2.zip.{UUID}.TID1.tmp"
    node.write(name, CONTENT)
    other = Node(tmp_path, "other")
    other.read(name)  # and keeps it
    node.write(temporary, b"a")
    for asked, gateway in ((name, node.gateway), (name, other.gateway), (temporary, node.gateway)):
        assert gateway.status(EXECUTOR, node.path(asked)) == node.durable.status(asked)
    node.rename(temporary, "state/0/1/2.zip")
    with pytest.raises(Absent):
        node.gateway.status(EXECUTOR, node.path(temporary))
    node.gateway.delete(EXECUTOR, node.path(name), recursive=False)
    with pytest.raises(Absent):
        node.gateway.status(EXECUTOR, node.path(name))


def test_opening_a_name_that_may_be_written_again_costs_one_question(node: Node, tmp_path: Path) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    node.durable.calls.clear()
    path = node.path("state/0/1/1.delta")
    seen = node.gateway.look_for(EXECUTOR, path)
    assert b"".join(node.gateway.open_file(EXECUTOR, path, 0, None, seen=seen).pieces) == CONTENT
    assert node.durable.calls == ["status state/0/1/1.delta"]
    Node(tmp_path, "other").write("state/0/1/1.delta", b"another")
    for known in (node.gateway.look_for(EXECUTOR, path), "of no file"):
        assert b"".join(node.gateway.open_file(EXECUTOR, path, 0, None, seen=known).pieces) == b"another"


def test_what_is_to_be_opened_is_a_file_that_is_there(node: Node) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    node.gateway.look_for(EXECUTOR, node.path("state/0/1/1.delta"))
    with pytest.raises(Absent):
        node.gateway.look_for(EXECUTOR, node.path("state/0/1/2.delta"))
    with pytest.raises(IsADirectory):
        node.gateway.look_for(EXECUTOR, node.path("state/0/1"))


@pytest.mark.req("LOC-7")
def test_a_full_disk_makes_writes_durable_only(node: Node) -> None:
    node.copies.problem, node.copies.fail_after = disk_full(), 250_000
    node.write("state/0/1/1.delta", CONTENT)  # it fails in the middle
    assert node.read("state/0/1/1.delta") == CONTENT
    assert node.counts("disk_failures", "kept_bytes") == (1, 0)
    node.write("state/0/1/2.delta", CONTENT)  # the disk is left alone for a while
    assert node.counts("disk_failures") == (1,)


@pytest.mark.req("LOC-7")
def test_a_large_file_is_written_again_when_the_disk_fails_in_the_middle(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_gateway_writes, "_REMEMBERED", 30_000)
    node.copies.problem, node.copies.fail_after = disk_full(), 500_000
    with pytest.raises(RetryLater):
        node.write("state/0/1/1.delta", CONTENT)
    node.write("state/0/1/1.delta", CONTENT)
    assert node.read("state/0/1/1.delta") == CONTENT


def test_a_disk_that_refuses_to_keep_a_file_costs_the_copy_only(node: Node) -> None:
    node.copies.problem, node.copies.fail_after = disk_full(), 10**9
    node.write("state/0/1/1.delta", CONTENT)
    assert node.copies.records() == ()
    assert node.read("state/0/1/1.delta") == CONTENT


def test_an_upload_is_stored_once_the_store_answers(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_gateway_writes, "_PAUSE", 0.001)
    node.durable.fail("create", RetryLater("away"))
    with pytest.raises(RetryLater):  # the attempt's mark: the client asks again
        node.gateway.admit(DRIVER_OF[2])
    node.gateway.admit(DRIVER_OF[2])
    node.durable.fail("create", RetryLater("away"), times=3)
    node.write("offsets/0", b"x", DRIVER_OF[2], overwrite=False)
    assert node.read("offsets/0", DRIVER_OF[2]) == b"x"


def test_an_upload_of_a_lost_answer_is_found_by_its_unique_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_gateway_writes, "_PAUSE", 0.001)
    node.gateway.make_directory(EXECUTOR, node.path("d"))
    node.durable.fail("create", UnknownOutcome("the answer was lost"), applied=True)
    node.write(f"d/.1.{UUID}.tmp", CONTENT, overwrite=False)
    node.durable.fail("create", UnknownOutcome("the answer was lost"), applied=True)
    with pytest.raises(UnknownOutcome):
        node.write("d/1", CONTENT, overwrite=False)


def test_other_bytes_than_were_received_are_not_acknowledged(node: Node) -> None:
    for caller in (EXECUTOR, DRIVER_OF[1]):
        incoming = node.gateway.receive(caller, node.path("state/0/1/1.delta"), overwrite=True)
        assert isinstance(incoming, state_gateway_writes.GatewayWrite)
        incoming.write(b"x" * 1000)
        source = incoming._staged or incoming._spool
        assert source is not None
        source.finish()
        with source.path.open("ab") as file:
            file.write(b"a line of somebody else's")
        with pytest.raises(Fatal, match=r"1025 bytes in .*, but 1000 were received"):
            incoming.commit()
        incoming.abandon()
    assert node.copies.records() == ()


def test_a_name_is_given_once(node: Node) -> None:
    node.write("offsets/0", b"first", overwrite=False)
    with pytest.raises(Exists):
        node.write("offsets/0", b"second", overwrite=False)
    assert node.read("offsets/0") == b"first"
    assert [record.length for record in node.copies.records()] == [5]


# --- renames ----------------------------------------------------------------------------------------------------------


def test_a_copy_follows_its_rename(node: Node) -> None:
    node.write(f"offsets/.0.{UUID}.tmp", CONTENT)
    node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0")
    assert [record.path.name for record in node.copies.records()] == ["offsets/0"]
    assert node.read("offsets/0") == CONTENT
    assert node.counts("hits", "stale") == (1, 0)


def test_a_rename_onto_a_file_takes_its_copys_place(node: Node) -> None:
    node.write("offsets/0", b"old")
    node.write(f"offsets/.0.{UUID}.tmp", CONTENT)
    with pytest.raises(Exists):
        node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0")
    assert node.read("offsets/0") == b"old"
    node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=True)
    assert node.read("offsets/0") == CONTENT
    assert len(node.copies.records()) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_rename_whose_answer_was_lost_is_repeated(node: Node, restarted: bool, overwrite: bool) -> None:
    node.write(f"offsets/.0.{UUID}.tmp", CONTENT)
    node.durable.fail("rename", UnknownOutcome("the answer was lost"), applied=True)
    with pytest.raises(RetryLater):
        node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=overwrite)
    if restarted:
        node.restarted_gateway()
    node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=overwrite)
    node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=overwrite)
    assert node.read("offsets/0") == CONTENT


def test_a_rename_of_nothing_stays_refused(node: Node) -> None:
    node.write("offsets/0", CONTENT)
    for _ in range(2):
        with pytest.raises(Absent):
            node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0", overwrite=True)


def test_the_loser_of_a_race_stays_refused(node: Node) -> None:
    node.write("offsets/0", b"winner")
    node.write(f"offsets/.0.{UUID}.tmp", b"loser")
    for _ in range(2):
        with pytest.raises(Exists):
            node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0")
    assert node.read("offsets/0") == b"winner"


def test_directories_move_and_go_with_their_copies(node: Node) -> None:
    node.write("d/a", CONTENT)
    node.write("d/b/c", CONTENT)
    node.rename("d", "e")
    assert node.copies.records() == ()
    assert node.read("e/b/c") == CONTENT
    assert node.gateway.delete(EXECUTOR, node.path("e"), recursive=True)
    assert not node.gateway.delete(EXECUTOR, node.path("e"), recursive=True)
    assert node.copies.records() == ()


@pytest.mark.req("LOC-7")
def test_a_rename_that_cannot_be_noted_is_done(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.journal, "begin", lambda _: False)
    node.write(f"offsets/.0.{UUID}.tmp", CONTENT)
    node.rename(f"offsets/.0.{UUID}.tmp", "offsets/0")
    assert node.read("offsets/0") == CONTENT
    assert node.counts("disk_failures") == (1,)


@pytest.mark.req("SAFE-1", "LOC-8")
def test_whether_a_rename_was_done_is_asked_again_while_its_journal_cannot_be_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Rename) -> bool:
        raise Unavailable("the journal cannot be read now")

    name = f"offsets/.0.{UUID}.tmp"
    node.write(name, CONTENT)
    node.durable.fail("rename", UnknownOutcome("the answer was lost"), applied=True)
    with pytest.raises(RetryLater):
        node.rename(name, "offsets/0")
    begun = set(node.journal.begun)
    with monkeypatch.context() as disk:
        disk.setattr(node.journal, "knows", away)
        with pytest.raises(Unavailable):
            node.rename(name, "offsets/0")
        node.write("offsets/1", b"1")
        node.rename("offsets/1", "offsets/2")
        with pytest.raises(Absent):
            node.rename("offsets/3", "offsets/4")
    node.journal.begun = begun  # as it is read later
    node.rename(name, "offsets/0")
    assert node.read("offsets/0") == CONTENT


@pytest.mark.req("SAFE-1")
def test_a_copy_that_cannot_be_read_now_costs_time_only_and_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"state/0/1/{UUID}.sst"
    node.write(name, CONTENT)
    record = node.copies.find(node.path(name))

    pread, calls = os.pread, 0

    def bad_sector(file: int, size: int, begin: int) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 2:  # what follows reads the durable file
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size, begin)

    with monkeypatch.context() as disk:
        disk.setattr(os, "pread", bad_sector)
        assert node.read(name) == CONTENT
    assert node.copies.find(node.path(name)) == record
    assert node.counts("verify_failures", "disk_failures") == (0, 1)
    assert node.read(name) == CONTENT
    assert node.counts("disk_failures") == (1,)


# --- what there is ----------------------------------------------------------------------------------------------------


def test_listings_show_what_the_job_made(node: Node) -> None:
    node.write("q/offsets/0", b"12345")
    node.gateway.make_directory(EXECUTOR, node.path("q/state"))
    assert [entry.name for entry in node.gateway.listing(EXECUTOR, node.path(""))] == ["q"]
    assert [entry.name for entry in node.gateway.listing(EXECUTOR, node.path("q"))] == ["q/offsets", "q/state"]
    assert node.gateway.status(EXECUTOR, node.path("q/offsets/0")).length == 5
    assert node.gateway.status(EXECUTOR, node.path("q")).kind is FileKind.DIRECTORY
    summary = node.gateway.summary(EXECUTOR, node.path("q"))
    assert (summary.length, summary.files, summary.directories) == (5, 1, 3)
    assert node.gateway.summary(EXECUTOR, node.path("q/offsets/0")).files == 1
    with pytest.raises(IsADirectory):
        node.read("q")
    with pytest.raises(InvalidInput):
        node.read("q/offsets/0", offset=6)


@pytest.mark.parametrize("path", ["own/.attempts/1", "own/.attempts"])
def test_the_attempts_marks_are_not_the_jobs_to_touch(node: Node, path: str) -> None:
    with pytest.raises(InvalidInput):
        node.gateway.resolve(EXECUTOR, f"/{JOB}/{path}")
    with pytest.raises(InvalidInput):
        node.gateway.delete(EXECUTOR, node.path(""), recursive=True)


# --- room -------------------------------------------------------------------------------------------------------------


def test_copies_keep_to_the_quota(tmp_path: Path) -> None:
    node = Node(tmp_path, quota=3 * 660_000)
    full = 0

    def count() -> None:
        nonlocal full
        full += 1

    node.gateway.disk.when_full = count
    for number in range(6):
        node.write(f"state/0/1/{number}.delta", CONTENT)
        node.read("state/0/1/0.delta")  # used again and again: it stays
        node.gateway.disk.make_room()
    assert full > 0
    assert node.copies.used() <= node.quota
    kept = {record.path.name for record in node.copies.records()}
    assert {"state/0/1/0.delta", "state/0/1/5.delta"} <= kept
    for number in range(6):
        assert node.read(f"state/0/1/{number}.delta") == CONTENT
    assert node.counts("evictions")[0] >= 4


@pytest.mark.req("LOC-4")
def test_nothing_is_kept_for_a_slot_that_was_given_back(node: Node) -> None:
    node.gateway.held = frozenset()
    node.write("state/0/1/1.delta", CONTENT)
    assert node.read("state/0/1/1.delta") == CONTENT
    assert node.copies.records() == ()
    node.write("offsets/0", CONTENT, DRIVER_OF[1])  # a driver has no slot
    assert node.read("offsets/0", DRIVER_OF[1]) == CONTENT
    assert node.copies.records() == ()


@pytest.mark.req("SEC-13")
def test_a_local_copy_is_not_for_another_job(node: Node) -> None:
    """Its user may have no right to read the durable file."""
    name = f"state/0/1/{UUID}.sst"
    node.write(name, CONTENT)
    driver = Caller(job_id=OTHER, attempt=1, allocation_id=DRIVER)
    other = Caller(job_id=OTHER, attempt=1, allocation_id=OTHER_SLOT)
    node.gateway.admit(driver)
    node.gateway.status(driver, node.path(""))  # names the root
    assert node.read(name, other) == CONTENT
    node.durable.delete(name, recursive=False)
    assert node.read(name) == CONTENT, "from the local copy"
    for ask in (node.gateway.status, node.gateway.look_for):
        with pytest.raises(Absent):
            ask(other, node.path(name))
    with pytest.raises(Absent):
        node.read(name, other)


def test_a_store_that_cannot_be_opened_is_an_error_of_the_request(node: Node) -> None:
    def refuse(_: str, user_id: int | None) -> None:
        raise Fatal("no such store")

    node.restarted_gateway().roots._open_state = refuse  # type: ignore[assignment]
    with pytest.raises(Fatal):
        node.write("offsets/0", b"x")
