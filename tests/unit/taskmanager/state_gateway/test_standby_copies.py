"""A node with the reserved standby of a job copies the job's state from the durable store, before it has a slot."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.local_state.model import STANDBY, Caller, FileStatus
from emberkeep.taskmanager.state_gateway.standby_copies import FollowedJob, StandbyCopies
from tests.unit.taskmanager.state_gateway.state_gateways import EXECUTOR, JOB, SLOT, UUID, Node

pytestmark = pytest.mark.req("LOC-11")
SST = f"000382-{UUID}.sst"


def version(*shared: str) -> bytes:
    """A RocksDB version that refers to files in SSTs/."""
    buffer = io.BytesIO()
    names = ",".join(f'{{"dfsSstFileName":"{name}"}}' for name in shared)
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", f'v1\n{{"sstFiles":[{names}],"numKeys":1}}')
    return buffer.getvalue()


class Pair:
    """A node whose executor writes a job's state, and another one with the job's reserved standby."""

    def __init__(self, place: Path, quota: int = 10**9) -> None:
        self.writer = Node(place, "writer")
        self.standby = Node(place, "standby", quota=quota)
        self.copies = StandbyCopies(self.standby.gateway)
        self.job = FollowedJob(JOB, (f"{place}/{JOB}/query-x",))
        self.copies.follow((self.job,))

        self.batch = 0

    def write(self, name: str, data: bytes) -> FileStatus:
        return self.writer.write(f"query-x/state/{name}", data)

    def commit(self) -> None:
        """Commit the next micro-batch."""
        self.writer.write(f"query-x/commits/{self.batch}", b"v1")
        self.batch += 1

    def copy(self) -> set[str]:
        """Commit a micro-batch and run one round. Return what the standby's node holds."""
        self.commit()
        self.copies.copy(self.job)
        return {record.path.name.removeprefix("query-x/state/") for record in self.standby.copies.records()}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_each_partition_of_each_store_is_copied_and_read_without_the_durable_bytes(pair: Pair) -> None:
    for name in ("0/0/1.delta", "0/0/2.delta", "0/1/2.delta", "1/0/left-keyToNumValues/2.delta"):
        pair.write(name, name.encode())
    pair.writer.write("query-y/state/0/0/1.delta", b"another query")
    assert pair.copy() == {"0/0/1.delta", "0/0/2.delta", "0/1/2.delta", "1/0/left-keyToNumValues/2.delta"}
    assert {record.allocation_id for record in pair.standby.copies.records()} == {STANDBY}
    assert pair.standby.read("query-x/state/0/1/2.delta") == b"0/1/2.delta"
    assert pair.standby.counts("hits", "misses", "remote_read_bytes") == (1, 0, 0)


def test_the_files_of_a_rocksdb_version_come_with_it_once(pair: Pair) -> None:
    pair.write(f"0/0/SSTs/{SST}", b"sorted")
    pair.write("0/0/SSTs/000001-old.sst", b"no longer needed")
    pair.write(f"0/0/SSTs/{SST}.crc", b"its checksum")
    pair.write("0/0/4.zip", version())
    pair.write("0/0/5.zip", version(SST))
    pair.write("0/0/6.zip", version(SST, "000999-purged.sst"))
    assert pair.copy() == {"0/0/5.zip", "0/0/6.zip", f"0/0/SSTs/{SST}", f"0/0/SSTs/{SST}.crc"}
    (before,) = pair.standby.counts("standby_bytes")
    pair.copy()
    assert pair.standby.counts("standby_bytes") == (before,), "nothing is copied twice"


def test_a_version_that_was_written_again_is_copied_again(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"first")
    pair.copy()
    pair.write("0/0/1.delta", b"second")
    pair.copy()
    assert pair.standby.read("query-x/state/0/0/1.delta") == b"second"
    assert pair.standby.counts("hits", "stale") == (1, 0)


def test_a_checkpoint_is_looked_at_again_once_a_micro_batch_was_committed(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"first")
    pair.copies.copy(pair.job)
    assert pair.standby.copies.records() == (), "nothing is committed yet"
    pair.copy()
    pair.standby.durable.calls.clear()
    pair.write("0/0/2.delta", b"second")
    pair.copies.copy(pair.job)
    assert pair.standby.durable.calls == ["listing query-x/commits"]
    assert pair.copy() == {"0/0/1.delta", "0/0/2.delta"}


def test_a_round_that_failed_is_repeated(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"data")
    pair.standby.durable.fail("read", RetryLater("the store does not answer"))
    assert pair.copy() == set()
    pair.copies.copy(pair.job)
    assert len(pair.standby.copies.records()) == 1


def test_what_an_executor_of_the_job_holds_here_stays_its_own(pair: Pair) -> None:
    pair.standby.write("query-x/state/0/0/1.delta", b"its own")
    pair.copy()
    (record,) = pair.standby.copies.records()
    assert record.allocation_id == SLOT


def test_nothing_is_copied_beyond_the_quota(tmp_path: Path) -> None:
    pair = Pair(tmp_path, quota=20_000)
    for partition in range(4):
        pair.write(f"0/{partition}/1.delta", b"x" * 7_000)
    assert len(pair.copy()) == 2


@pytest.mark.parametrize("spare", [0, 100, 4000])
def test_no_copy_is_evicted_for_those_of_a_standby(tmp_path: Path, spare: int) -> None:
    pair = Pair(tmp_path, quota=20 * 4096 + spare)
    full: list[bool] = []
    pair.standby.gateway.disk.when_full = lambda: full.append(True)
    for partition in range(30):
        pair.write(f"0/{partition}/1.delta", b"x" * 3800)
    assert len(pair.copy()) >= 10
    assert full == []


def test_a_damaged_version_is_copied_as_it_is(pair: Pair) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[]}' * 20)
    damaged = buffer.getvalue()[:40] + b"\xff\xff\xff\xff" + buffer.getvalue()[44:]
    pair.write("0/0/1.zip", damaged)
    assert pair.copy() == {"0/0/1.zip"}


def test_a_name_that_no_record_can_have_ends_the_round_of_its_checkpoint_only(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"data")
    (pair.writer.place / JOB / "query-x/state/0/0" / os.fsdecode(b"2_\xff.delta")).write_bytes(b"not from Spark")
    pair.writer.write("query-y/state/0/0/1.delta", b"another query")
    pair.writer.write("query-y/commits/0", b"v1")
    pair.job = FollowedJob(JOB, (*pair.job.checkpoints, f"{pair.standby.place}/{JOB}/query-y"))
    assert pair.copy() == {"0/0/1.delta", "query-y/state/0/0/1.delta"}


async def test_a_round_ends_with_the_process(pair: Pair) -> None:
    for partition in range(5):
        pair.write(f"0/{partition}/1.delta", b"data")
    pair.commit()
    reads, cancelled = threading.Event(), threading.Event()

    def before(method: str) -> None:
        if method == "read":
            reads.set()
            assert cancelled.wait(10.0)

    pair.standby.durable.before = before
    running = asyncio.create_task(pair.copies.run())
    assert await asyncio.to_thread(reads.wait, 10.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    cancelled.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for the thread, as the process does
    assert pair.standby.copies.records() == ()
    assert sum(call.startswith("read") for call in pair.standby.durable.calls) == 1


def test_jobs_may_come_and_go_during_a_round(pair: Pair) -> None:
    jobs = tuple(FollowedJob(JobId(f"{number:032x}"), ()) for number in range(50))
    ended = threading.Event()

    def rounds() -> None:
        while not ended.is_set():
            for job in jobs:
                pair.copies.copy(job)

    copying, before = threading.Thread(target=rounds), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that the threads meet between any two steps
    copying.start()
    try:
        for _ in range(3000):
            pair.copies.follow(jobs)
            pair.copies.follow(jobs[:25])
    finally:
        sys.setswitchinterval(before)
        ended.set()
        copying.join()


def test_no_copy_appears_once_they_are_stopped(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"data")
    pair.standby.durable.before = lambda method: pair.copies.stop() if method == "read" else None
    assert pair.copy() == set()
    pair.copies.follow((pair.job,))
    assert pair.copy() == set()


@pytest.mark.parametrize(("where", "fail_after"), [("durable", 0), ("disk", 0), ("disk", 1)])
def test_a_store_or_disk_that_fails_costs_copies_only(pair: Pair, where: str, fail_after: int) -> None:
    pair.write("0/0/1.delta", b"data")
    if where == "durable":
        pair.standby.durable.fail("read", RetryLater("the store does not answer"))
    else:
        pair.standby.copies.problem = Fatal("no space left")
        pair.standby.copies.fail_after = fail_after
    assert pair.copy() == set()
    assert pair.standby.read("query-x/state/0/0/1.delta") == b"data"


def test_checkpoints_of_a_job_without_state_or_elsewhere_are_no_error(pair: Pair) -> None:
    for location in (f"{pair.standby.place}/{JOB}/query-none", "hdfs://host/checkpoint", f"{pair.standby.place}/none"):
        pair.job = FollowedJob(JOB, (location,))
        assert pair.copy() == set()


def test_a_checkpoint_that_the_script_has_named_is_copied(pair: Pair, tmp_path: Path) -> None:
    named = tmp_path / "named"
    file = named / "state/0/0/1.delta"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"elsewhere")
    (named / "commits").mkdir()
    (named / "commits/7").write_bytes(b"v1")
    pair.job = FollowedJob(JOB, (str(named),))
    pair.copy()
    (record,) = pair.standby.copies.records()
    assert (record.path.root, record.path.name) == (str(named), "state/0/0/1.delta")


def test_a_job_that_is_no_longer_followed_is_left_alone(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"data")
    pair.copies.follow(())
    assert pair.copy() == set()


def test_another_job_cannot_read_the_copies(pair: Pair) -> None:
    pair.write("0/0/1.delta", b"data")
    pair.copy()
    record = pair.standby.copies.find(pair.standby.path("query-x/state/0/0/1.delta"))
    assert record is not None
    assert record.job_id == EXECUTOR.job_id
    assert Caller(job_id=record.job_id, attempt=record.attempt, allocation_id=STANDBY).user_id is None
