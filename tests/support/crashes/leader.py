"""The durable steps of a JobManager: its job store, its BLOBs, and what it keeps about jobs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.adapters.chronicle.files import ChronicleFiles
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.adapters.job_store.graph_files import GraphFiles, StateHandle
from emberkeep.adapters.job_store.result_files import ResultFile, ResultFiles
from emberkeep.adapters.kept_logs.files import KeepLimits, KeptLogFiles
from emberkeep.base.files.ownership import OWNER_FILE, OwnedPlaceKind, Owner, claim
from emberkeep.chronicle.occurrence import Occurrence, What, occurrence_id
from emberkeep.jobs.model import JobResult
from tests.support.contracts.job_store import job, result_of
from tests.support.crashes.blobs import check_blobs, check_shared_blobs, live_blobs, live_shared_blobs
from tests.support.crashes.component import Component
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.recorded import Crash, RecordedFiles
from tests.support.kept_logs.pieces import JOB, content_of, key, piece

LEADER = "leader"
DATABASE = "jobs.sqlite"
_DATABASE_SIZES = range(4096, 40 * 4096, 4096)  # from its first page to more than its log has in a life


def temporaries(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*.tmp"))


# --- the embedded job store -------------------------------------------------------------------------------------------


def live_job_store(root: Path, files: FollowedFiles) -> None:
    files.follow(root / f"{DATABASE}-wal", root / DATABASE)
    database = JobDatabase(root / DATABASE, root / "graphs", 1)
    try:
        _use_job_store(database, files)
    finally:
        database.close()
    files.absorb()


def _use_job_store(database: JobDatabase, files: FollowedFiles) -> None:
    files.absorb()
    files.mark("opened")
    for number in range(1, 4):
        database.create(job(number))
        files.absorb()
        files.mark(f"created {number}")
        database.record_attempt(job(number).job_id, 1, None)
        files.absorb()
        files.mark(f"began {number} 1")
    database.record_attempt(job(2).job_id, 2, None)
    files.absorb()
    files.mark("began 2 2")
    database.record_cancel(job(3).job_id)
    files.absorb()
    files.mark("cancelled 3")
    database.record_result(result_of(job(1)))
    files.absorb()
    files.mark("ended 1")


def check_job_store(crash: Crash) -> None:
    database = JobDatabase(crash.directory / DATABASE, crash.directory / "graphs", 1)
    try:
        jobs = {entry.job_id: entry for entry in database.recover()}
        ended = {result.job_id for result in database.results()}
        for entry in jobs.values():
            assert entry.graph is not None, f"{entry.job_id} cannot be read: {entry.problem}"
            assert entry.graph == job(int(entry.job_id, 16))
        for mark in crash.marks:
            what, *numbers = mark.split()
            if what == "opened":
                continue
            job_id = job(int(numbers[0])).job_id
            if what == "ended":
                assert job_id in ended
                assert job_id not in jobs
            elif job_id not in ended:
                assert what != "created" or job_id in jobs
                assert what != "began" or jobs[job_id].attempt >= int(numbers[1])
                assert what != "cancelled" or jobs[job_id].canceled
        again = database.create(job(1))
        assert again == job(1).job_id
    finally:
        database.close()


# --- what is kept about jobs ------------------------------------------------------------------------------------------


def _occurrence(number: int) -> Occurrence:
    identifier = occurrence_id(1, number)
    return Occurrence(id=identifier, time_ms=number, what=What.STATUS, message=f"event {number}", job_id=JOB)


def live_chronicle(root: Path, files: RecordedFiles) -> None:
    number = 0
    for epoch in (1, 2):
        chronicle = ChronicleFiles(root / "a" / "b" / "c", epoch, 4, 4)
        for stream in (JOB, "", JOB, JOB, JOB, JOB, JOB):
            number += 1
            chronicle.append(stream, [_occurrence(number)])
            files.mark(f"{stream or '-'} {number}")


def check_chronicle(crash: Crash) -> None:
    chronicle = ChronicleFiles(crash.directory / "a" / "b" / "c", 3, 4, 4)
    for stream in ("", JOB):
        promised = [int(mark.split()[1]) for mark in crash.marks if mark.split()[0] == (stream or "-")]
        found = [each.time_ms for each in chronicle.read(stream)]
        assert set(promised[-3:]) <= set(found), f"{promised} were stored, {found} are there"
        assert len(found) == len(set(found))
        (crash.directory / "a").mkdir(exist_ok=True)
        chronicle.append(stream, [_occurrence(99)])
        assert 99 in [each.time_ms for each in chronicle.read(stream)]


_LOG = [f"line {number:06d}\n".encode() * 40 for number in range(12)]


def live_kept_logs(root: Path, files: RecordedFiles) -> None:
    (root / "kept").mkdir()
    offset = 0
    for epoch in (1, 2):
        logs = KeptLogFiles(root / "kept" / "logs", KeepLimits(most_bytes=10**6, keep_ms=0))
        for part in _LOG[(epoch - 1) * 6 : epoch * 6]:
            logs.keep(epoch, key(), piece(offset, part))
            offset += len(part)
            files.mark(str(offset))


def check_kept_logs(crash: Crash) -> None:
    (crash.directory / "kept").mkdir(exist_ok=True)
    logs = KeptLogFiles(crash.directory / "kept" / "logs", KeepLimits(most_bytes=10**6, keep_ms=0))
    whole, promised = b"".join(_LOG), int(crash.marks[-1]) if crash.marks else 0
    opened = logs.open(key())
    found = b"" if opened is None else content_of(opened)
    assert whole.startswith(found), "another log than the one that was kept"
    assert len(found) >= promised, f"{promised} bytes were kept, {len(found)} are there"
    position = logs.keep(3, key(), piece(len(found), whole[len(found) :], is_last=True))
    assert position.end == len(whole)
    again = logs.open(key())
    assert again is not None
    assert content_of(again) == whole


# --- files beside ZooKeeper -------------------------------------------------------------------------------------------


def _large(number: int) -> JobResult:
    result = result_of(job(number))
    return msgspec.structs.replace(result, root_cause="x" * 70_000)


class StoreFilesLife:
    """Graphs and large results, and the nodes that lead to them, which ZooKeeper keeps."""

    def __init__(self) -> None:
        self.handles: dict[str, StateHandle | ResultFile] = {}

    def live(self, root: Path, files: RecordedFiles) -> None:
        graphs, results = GraphFiles(root / "graphs", 1), ResultFiles(root / "results", 1)
        for number in range(1, 4):
            self.handles[f"graph {number}"] = graphs.write(job(number))
            files.mark(f"graph {number}")
        written = results.write(_large(1))
        assert written is not None
        self.handles["result 1"] = written
        files.mark("result 1")
        files.mark("deleting graph 1")
        graphs.discard(job(1).job_id)

    def check(self, crash: Crash) -> None:
        graphs, results = GraphFiles(crash.directory / "graphs", 2), ResultFiles(crash.directory / "results", 2)
        graphs.sweep_unfinished()
        results.sweep_unfinished()
        assert temporaries(crash.directory) == []
        for mark in set(crash.marks) - {"deleting graph 1"}:
            if f"deleting {mark}" in crash.marks:
                continue
            handle, number = self.handles[mark], int(mark.split()[1])
            if isinstance(handle, StateHandle):
                assert graphs.read(job(number).job_id, handle) == job(number)
            else:
                assert results.read(handle) == _large(number)


_FILES = StoreFilesLife()


# --- small files ------------------------------------------------------------------------------------------------------


def _owner(place: str) -> Owner:
    return Owner(cluster_id="north", kind=OwnedPlaceKind.STORAGE, created_at_ms=1, holder="", place_id=place)


def live_owner(root: Path, files: RecordedFiles) -> None:
    claim(root, _owner("first"))
    files.mark("claimed")


def check_owner(crash: Crash) -> None:
    found = claim(crash.directory, _owner("second"))
    assert found.place_id == "first" or "claimed" not in crash.marks
    assert claim(crash.directory, _owner("third")) == found
    assert (crash.directory / OWNER_FILE).exists()


class TokenLife:
    """The token of a cluster, which all its processes must agree on."""

    def __init__(self) -> None:
        self.tokens: dict[tuple[str, ...], str] = {}
        self._token = ""

    def live(self, root: Path, files: RecordedFiles) -> None:
        self._token = load_or_create_token(root / "token")
        files.mark(self._token)

    def check(self, crash: Crash) -> None:
        token = load_or_create_token(crash.directory / "token")
        assert not crash.marks or token == crash.marks[0]
        assert load_or_create_token(crash.directory / "token") == token


_TOKEN = TokenLife()

COMPONENTS = (
    Component(
        "job store in SQLite", LEADER, live_job_store, check_job_store, unseen="-shm", most_sizes=_DATABASE_SIZES
    ),
    Component("graphs and results beside ZooKeeper", LEADER, _FILES.live, _FILES.check),
    Component("BLOB store", LEADER, live_blobs, check_blobs),
    Component("BLOBs in the shared storage", LEADER, live_shared_blobs, check_shared_blobs),
    Component("events", LEADER, live_chronicle, check_chronicle),
    Component("kept logs", LEADER, live_kept_logs, check_kept_logs),
    Component("ownership record", LEADER, live_owner, check_owner),
    Component("token", LEADER, _TOKEN.live, _TOKEN.check),
)
