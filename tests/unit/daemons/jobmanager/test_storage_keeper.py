"""The storage shrinks with its jobs, in stages, and nothing goes that a job or another cluster may still need."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Collection, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.marks import MARKS_FILE
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater, Unavailable
from emberkeep.base.files.durable import write_record
from emberkeep.base.files.ownership import OWNER_FILE, encode_owner, read_owner
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.daemons.jobmanager.storage_cleanup import StorageKeeper
from emberkeep.jobmanager.views.cluster import JobView, Stranger
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import JobStatus
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import eventually

DELAYS = {
    "high-availability.storage.unknown-delay": "1000s",
    "high-availability.storage.ended-delay": "100s",
    "high-availability.storage.damaged-delay": "10000s",
}
ORIGIN = StoreOrigin(identity="store-1", storage="", was_led=False)
UNKNOWN = JobId("9" * 32)

pytestmark = pytest.mark.anyio


class Blobs:
    """The BLOB server's part."""

    def __init__(self) -> None:
        self.unknown: set[JobId] = set()
        self.given_up: set[JobId] = set()

    def unknown_owners(self) -> set[JobId]:
        return set(self.unknown)

    def give_up(self, owners: Collection[JobId]) -> None:
        self.given_up |= set(owners)


class Leftovers:
    """The files of the job store that no record leads to."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def graphs(self) -> set[JobId]:
        return set(self._bench.graphs)

    async def remove_graph(self, job_id: JobId) -> None:
        self._bench.fail(job_id)
        self._bench.graphs.discard(job_id)

    async def results(self) -> set[JobId]:
        return set(self._bench.results)

    async def remove_result(self, job_id: JobId) -> None:
        self._bench.fail(job_id)
        self._bench.results.discard(job_id)


class Bench:
    """A keeper over a real directory. ``seconds``: the time. ``leads``: whether its JobManager does."""

    def __init__(self, directory: Path, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self.layout = StateLayout(directory, Configuration().with_texts({**DELAYS, **options}, "test"))
        self.storage = ClusterStorage(self.layout, lambda: 0)
        self.gateway = FakeGateway()
        self.blobs = Blobs()
        self.seconds, self.leads, self.graphs_away = 0, True, False
        self.kept: dict[JobId, int] = {}  # of damaged jobs, since which second
        self.graphs: set[JobId] = set()  # without a handle
        self.results: set[JobId] = set()  # without a node
        self.failures: dict[JobId, EmberkeepError] = {}  # of removals from the job store
        self.leftovers = Leftovers(self)
        self.storage.settle(ORIGIN)
        self.keeper = StorageKeeper(
            self.layout.configuration, self.storage, self, self.gateway, self.blobs, lambda: self.seconds * 1000
        )

    async def confirm(self) -> None:
        if not self.leads:
            raise Conflict("epoch 1 is over")

    async def adopt_storage(self) -> None:
        await self.confirm()
        self.storage.adopt()

    async def damaged(self) -> list[DamagedJob]:
        return [
            DamagedJob(job_id=job_id, since_ms=since * 1000, places=(f"/store/{job_id}",))
            for job_id, since in self.kept.items()
        ]

    async def remove_damaged(self, job_id: JobId) -> None:
        self.fail(job_id)
        if self.graphs_away:
            raise Unavailable("the graphs are away")
        del self.kept[job_id]

    def fail(self, job_id: JobId) -> None:
        if job_id in self.failures:
            raise self.failures[job_id]

    def know(self, *views: JobView) -> None:
        self.gateway.views = {view.job_id: view for view in views}

    def put(self, *job_ids: JobId) -> None:
        for identifier in job_ids:
            (self.layout.checkpoints / identifier / "query").mkdir(parents=True)

    def left(self) -> set[str]:
        return {path.name for path in self.layout.checkpoints.iterdir() if path.name != OWNER_FILE}

    async def clean_at(self, seconds: int) -> None:
        self.seconds = seconds
        await self.keeper.clean()

    def give_to(self, **fields: str) -> None:
        """Exchange the ownership record."""
        owner = read_owner(self.layout.storage_record)
        assert owner is not None
        changed = msgspec.structs.replace(owner, **fields)
        (self.layout.storage_record / OWNER_FILE).write_bytes(encode_owner(changed))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.req("SAFE-7")
async def test_checkpoints_go_in_stages_and_those_that_a_job_may_need_stay(bench: Bench) -> None:
    views = {status: job_view(job_id(number), "job", status) for number, status in enumerate(JobStatus, 1)}
    bench.know(*views.values())
    bench.put(UNKNOWN, *(view.job_id for view in views.values()))
    over = {views[JobStatus.FINISHED].job_id, views[JobStatus.CANCELED].job_id}
    everything = bench.left()
    for seconds, gone in ((0, set()), (99, set()), (100, over), (999, over), (1000, {*over, UNKNOWN})):
        await bench.clean_at(seconds)
        assert bench.left() == everything - gone
    assert not bench.keeper.problem()


@pytest.mark.req("SAFE-7")
async def test_logs_stay_until_their_job_is_unknown_for_long(bench: Bench) -> None:
    ended = job_view(job_id(1), "job", JobStatus.FINISHED)
    bench.know(ended)
    for identifier in (ended.job_id, UNKNOWN):
        (bench.layout.kept_logs / identifier / "1" / "tm-1~driver.stderr").mkdir(parents=True)

    await bench.clean_at(0)
    await bench.clean_at(999)
    assert {path.name for path in bench.layout.kept_logs.iterdir()} == {ended.job_id, UNKNOWN}
    await bench.clean_at(1000)
    assert {path.name for path in bench.layout.kept_logs.iterdir()} == {ended.job_id}
    assert [(each.jobid, each.kind) for each in (await bench.keeper.status()).data] == []

    bench.know()
    await bench.clean_at(1001)
    assert [(each.jobid, each.kind) for each in (await bench.keeper.status()).data] == [(ended.job_id, "logs")]
    await bench.keeper.purge()
    assert not list(bench.layout.kept_logs.iterdir())


@pytest.mark.req("SAFE-7")
async def test_events_stay_until_their_job_is_unknown_for_long(bench: Bench) -> None:
    """A leader may end between the expiry of a result and the deletion of its events."""
    ended = job_view(job_id(1), "job", JobStatus.FINISHED)
    bench.know(ended)
    lineages = [bench.layout.events / name for name in ("store-0", "store-1")]
    for lineage in lineages:
        for name in (ended.job_id, UNKNOWN, "cluster", "nodes"):
            (lineage / name).mkdir(parents=True)
            (lineage / name / "000000000000001.events").touch()

    def left() -> list[set[str]]:
        return [{path.name for path in lineage.iterdir()} for lineage in lineages]

    others = {"cluster", "nodes"}
    await bench.clean_at(0)
    await bench.clean_at(999)
    assert left() == [{ended.job_id, UNKNOWN, *others}] * 2
    assert [(each.jobid, each.kind) for each in (await bench.keeper.status()).data] == [(UNKNOWN, "logs")]
    await bench.clean_at(1000)
    assert left() == [{ended.job_id, *others}] * 2
    bench.know()
    await bench.keeper.purge()
    assert left() == [others] * 2


@pytest.mark.req("SAFE-7")
async def test_a_mark_is_taken_back_when_the_job_is_known_again(bench: Bench) -> None:
    bench.put(UNKNOWN)
    await bench.clean_at(0)
    bench.know(job_view(UNKNOWN, "job"))
    await bench.clean_at(1000)
    bench.know()
    await bench.clean_at(1001)
    await bench.clean_at(2000)
    assert bench.left() == {UNKNOWN}
    await bench.clean_at(2001)
    assert not bench.left()


@pytest.mark.req("SAFE-7")
async def test_the_period_goes_on_under_the_next_leader(bench: Bench, tmp_path: Path) -> None:
    bench.put(UNKNOWN)
    await bench.clean_at(0)
    following = Bench(tmp_path)
    await following.clean_at(1000)
    assert not following.left()


@pytest.mark.req("SAFE-14")
async def test_marks_of_a_newer_release_are_left_alone_and_nothing_is_deleted(bench: Bench) -> None:
    bench.put(UNKNOWN)
    path = bench.layout.storage_record / MARKS_FILE
    write_record(path, "storage-deletions", 2, b"{}")
    written = path.read_bytes()
    for seconds in (0, 1000, 2000):
        with pytest.raises(NewerFormat, match=MARKS_FILE):
            await bench.clean_at(seconds)
    assert bench.left() == {UNKNOWN}
    assert path.read_bytes() == written
    assert "newer release" in bench.keeper.problem()
    since = bench.keeper.problem_since_ms
    with pytest.raises(NewerFormat):
        await bench.clean_at(3000)
    assert bench.keeper.problem_since_ms == since > 0
    path.unlink()
    await bench.clean_at(3001)
    assert bench.keeper.problem_since_ms == 0


@pytest.mark.req("HA-6")
@pytest.mark.req("SAFE-10")
async def test_a_deposed_leader_removes_nothing(bench: Bench) -> None:
    """Stopped between two looks, it goes on when its successor runs a job that it has never heard of."""
    bench.put(UNKNOWN)
    await bench.clean_at(0)
    bench.leads = False
    with pytest.raises(RetryLater, match="no longer the leader"):
        await bench.clean_at(1000)
    for request in (bench.keeper.adopt, bench.keeper.purge):
        with pytest.raises(RetryLater, match="no longer the leader"):  # the client then asks the new one
            await request()
    assert bench.left() == {UNKNOWN}


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize("fields", [{"cluster_id": "another"}, {"belongs_to": "another-store"}, {"place_id": "other"}])
async def test_each_stage_looks_at_the_ownership_anew(bench: Bench, fields: dict[str, str]) -> None:
    bench.put(UNKNOWN)
    bench.blobs.unknown = {UNKNOWN}
    await bench.clean_at(0)
    bench.give_to(**fields)
    with pytest.raises(EmberkeepError):
        await bench.clean_at(1000)
    assert bench.left() == {UNKNOWN}
    assert not bench.blobs.given_up
    assert bench.keeper.problem()
    assert bench.keeper.condition().unneeded == 2


@pytest.fixture
def apart(tmp_path: Path) -> Bench:
    """With BLOBs in a place of their own."""
    return Bench(tmp_path, {"blob.storage.ha-directory": str(tmp_path / "blobs-apart")})


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize("place", ["bench", "apart"])
async def test_blobs_of_unknown_jobs_are_given_up_after_the_period(place: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(place)
    bench.blobs.unknown = {UNKNOWN}
    await bench.clean_at(0)
    await bench.clean_at(999)
    assert not bench.blobs.given_up
    await bench.clean_at(1000)
    assert bench.blobs.given_up == {UNKNOWN}


@pytest.mark.req("SAFE-6")
async def test_a_person_is_told_of_blobs_apart_and_purges_them(apart: Bench) -> None:
    apart.blobs.unknown = {UNKNOWN}
    told = await apart.keeper.status()
    assert [(data.jobid, data.kind, data.known) for data in told.data] == [(UNKNOWN, "blobs", False)]
    assert told.blobs == str(apart.layout.root / "blobs-apart")
    await apart.keeper.purge()
    assert apart.blobs.given_up == {UNKNOWN}


@pytest.mark.req("SAFE-4", "SAFE-7")
async def test_blobs_apart_stay_where_their_place_is_not_this_clusters(apart: Bench) -> None:
    """All else is cleaned; and the period goes on."""
    apart.blobs.unknown = {UNKNOWN}
    apart.put(UNKNOWN)
    await apart.clean_at(0)
    record = apart.layout.root / "blobs-apart" / OWNER_FILE
    mine = record.read_bytes()
    owner = read_owner(record.parent)
    assert owner is not None
    record.write_bytes(encode_owner(msgspec.structs.replace(owner, cluster_id="another")))
    await apart.clean_at(1000)
    assert not apart.left()
    assert not apart.blobs.given_up
    assert "of cluster 'another'" in apart.keeper.problem()
    told = await apart.keeper.status()
    assert (told.owned, [data.kind for data in told.data]) == (False, ["blobs"])
    record.write_bytes(mine)
    await apart.clean_at(1001)
    assert apart.blobs.given_up == {UNKNOWN}


@pytest.mark.req("SAFE-7")
async def test_graphs_without_a_handle_go_in_stages(bench: Bench) -> None:
    over, failed = job_view(job_id(1), "job", JobStatus.FINISHED), job_view(job_id(2), "job", JobStatus.FAILED)
    bench.know(over, failed)
    everything = {UNKNOWN, over.job_id, failed.job_id}
    bench.graphs = set(everything)
    for seconds, gone in ((0, set()), (99, set()), (100, {over.job_id}), (999, {over.job_id})):
        await bench.clean_at(seconds)
        assert bench.graphs == everything - gone
    told = await bench.keeper.status()
    assert [(data.jobid, data.kind, data.known, data.due) for data in told.data] == [
        (UNKNOWN, "graph", False, 1_000_000)
    ]
    await bench.clean_at(1000)
    assert bench.graphs == {failed.job_id}


@pytest.mark.req("SAFE-7")
async def test_files_of_results_that_the_store_does_not_know_go_in_stages(bench: Bench) -> None:
    bench.results = {UNKNOWN}
    for seconds in (0, 999):
        await bench.clean_at(seconds)
        assert bench.results
    told = await bench.keeper.status()
    assert [(data.jobid, data.kind, data.known, data.due) for data in told.data] == [
        (UNKNOWN, "result", False, 1_000_000)
    ]
    bench.give_to(place_id="other")
    with pytest.raises(EmberkeepError):
        await bench.clean_at(1000)
    assert bench.results == {UNKNOWN}
    await bench.keeper.adopt()
    assert not bench.results


@pytest.mark.req("SAFE-6")
async def test_a_purge_removes_files_of_results(bench: Bench) -> None:
    bench.results = {UNKNOWN}
    await bench.keeper.purge()
    assert not bench.results


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize("hindrance", ["storage", "leader"])
async def test_graphs_without_a_handle_stay_while_it_is_not_sure_that_they_may_go(bench: Bench, hindrance: str) -> None:
    bench.graphs = {UNKNOWN}
    await bench.clean_at(0)
    if hindrance == "storage":
        bench.give_to(place_id="other")
    else:
        bench.leads = False
    with pytest.raises(EmberkeepError):
        await bench.clean_at(1000)
    assert bench.graphs == {UNKNOWN}


@pytest.mark.req("SAFE-6")
async def test_a_purge_removes_graphs_without_a_handle(bench: Bench) -> None:
    bench.graphs = {UNKNOWN}
    await bench.keeper.purge()
    assert not bench.graphs


@pytest.mark.req("SAFE-6")
async def test_a_person_is_told_what_lies_there_and_purges_it(bench: Bench) -> None:
    running = job_view(job_id(1), "job")
    bench.know(running)
    bench.put(UNKNOWN, running.job_id)
    graphs = bench.layout.graphs / "another-store"
    graphs.mkdir(parents=True)
    (graphs / f"{UNKNOWN}.graph").touch()
    bench.give_to(belongs_to="another-store")
    told = await bench.keeper.status()
    assert not told.owned
    assert "another job store" in told.problem
    assert [(data.jobid, data.kind, data.known, data.due) for data in told.data] == [
        (UNKNOWN, "checkpoints", False, -1),
        (UNKNOWN, "graph", False, -1),
    ]
    purged = await bench.keeper.purge()
    assert purged.owned
    assert not purged.data
    assert bench.left() == {running.job_id}


@pytest.mark.req("SAFE-6")
async def test_what_is_adopted_goes_in_stages(bench: Bench) -> None:
    bench.put(UNKNOWN)
    bench.give_to(belongs_to="another-store")
    adopted = await bench.keeper.adopt()
    assert adopted.owned
    assert [data.due for data in adopted.data] == [1_000_000]
    await bench.clean_at(1000)
    assert not bench.left()


STRANGER = Stranger(id=TaskManagerId("tm-9"), address="127.0.0.9:1", node_id="node-9", pid=42, lineage="lost-store")


@pytest.mark.req("SAFE-6")
async def test_nothing_falls_due_that_jobs_of_another_job_store_may_use(bench: Bench, tmp_path: Path) -> None:
    over = job_view(job_id(1), "job", JobStatus.FINISHED)
    bench.know(over)
    bench.put(UNKNOWN, over.job_id)
    bench.blobs.unknown = bench.graphs = bench.results = {UNKNOWN}
    bench.give_to(belongs_to="lost-store")
    await bench.keeper.adopt()
    bench.gateway.others = (STRANGER,)
    for seconds in (500, 1000, 5000):
        await bench.clean_at(seconds)
    assert bench.left() == {UNKNOWN}, "what this job store knows goes as always"
    assert (bench.graphs, bench.results, bench.blobs.given_up) == ({UNKNOWN}, {UNKNOWN}, set())
    assert [each.id for each in (await bench.keeper.status()).used_by] == [STRANGER.id]
    following = Bench(tmp_path)  # has not heard of it yet
    await following.clean_at(5999)
    assert following.left() == {UNKNOWN}
    await following.clean_at(6000)
    assert not following.left()


@pytest.mark.req("SAFE-6")
async def test_a_purge_is_refused_while_jobs_of_another_job_store_may_use_the_data(bench: Bench) -> None:
    bench.put(UNKNOWN)
    bench.give_to(belongs_to="lost-store")
    bench.gateway.others = (STRANGER,)
    with pytest.raises(Conflict, match=r"tm-9 at 127\.0\.0\.9:1"):
        await bench.keeper.purge()
    assert bench.left() == {UNKNOWN}
    assert not (await bench.keeper.status()).owned, "it is not adopted either"
    assert (await bench.keeper.purge(force=True)).owned
    assert not bench.left()


def failing(monkeypatch: pytest.MonkeyPatch, number: int, calls: Collection[str], path: Path) -> None:
    """Let the operating system refuse these calls for a path."""

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(where: Any, *words: Any, **more: Any) -> Any:
            if str(where) == str(path):
                raise OSError(number, os.strerror(number), str(path))
            return call(where, *words, **more)

        return run

    for name in calls:
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


FAILURES = pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES], ids=errno.errorcode.get)


@pytest.mark.req("SAFE-1")
@FAILURES
async def test_graphs_that_cannot_be_read_now_end_no_clean_up(
    bench: Bench, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = bench.layout.graphs / "another-store"
    graphs.mkdir(parents=True)
    bench.put(UNKNOWN)
    await bench.clean_at(0)
    with monkeypatch.context() as refused:
        failing(refused, number, ("stat", "listdir", "scandir"), graphs)
        with pytest.raises(Unavailable):
            await bench.clean_at(1000)
        with pytest.raises(Unavailable):
            await bench.keeper.purge()
    assert bench.left() == {UNKNOWN}, "a graph of another store may be its job's"
    await bench.keeper.clean()
    assert not bench.left()


@pytest.mark.req("SAFE-1")
@FAILURES
async def test_a_purge_that_cannot_remove_a_graph_now_can_be_said_again(
    bench: Bench, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = bench.layout.graphs / "another-store" / f"{UNKNOWN}.graph"
    graph.parent.mkdir(parents=True)
    graph.touch()
    with monkeypatch.context() as refused:
        failing(refused, number, ("unlink", "remove"), graph)
        with pytest.raises(Unavailable, match=str(graph)):
            await bench.keeper.purge()
    await bench.keeper.purge()
    assert not graph.exists()


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
async def test_data_that_cannot_be_removed_now_does_not_keep_other_data(
    bench: Bench, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = JobId("1" * 32), JobId("2" * 32)
    bench.put(first, second)
    await bench.clean_at(0)
    stuck = bench.layout.checkpoints / first
    with monkeypatch.context() as refused, capture_logs() as logs:
        failing(refused, number, ("rmdir",), stuck)
        await bench.clean_at(1000)
    assert bench.left() == {first}
    assert [entry["job"] for entry in logs if entry["event"] == "cannot remove data that no job needs now"] == [first]
    await bench.keeper.clean()
    assert not bench.left()


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("failure", [Unavailable, Fatal])
async def test_a_file_of_the_job_store_that_cannot_be_removed_does_not_keep_other_data(
    bench: Bench, failure: type[EmberkeepError]
) -> None:
    stuck = job_id(1)
    bench.graphs, bench.results = {stuck, UNKNOWN}, {stuck, UNKNOWN}
    bench.kept = {stuck: 0, UNKNOWN: 0}
    bench.blobs.unknown = {UNKNOWN}
    bench.failures[stuck] = failure("it cannot be written")
    for seconds in (0, 9000, 10_000):
        await bench.clean_at(seconds)
    assert (bench.graphs, bench.results, set(bench.kept)) == ({stuck}, {stuck}, {stuck})
    assert bench.blobs.given_up == {UNKNOWN}
    del bench.failures[stuck]
    await bench.keeper.clean()
    assert [bench.graphs, bench.results, set(bench.kept)] == [set(), set(), set()]


async def test_an_error_of_the_file_system_does_not_end_the_keeper(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale() -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(bench.storage, "require", stale)
    with capture_logs() as logs:
        keeping = asyncio.ensure_future(bench.keeper.run())
        await eventually(lambda: bool(logs) or keeping.done())
        assert not keeping.done()
        keeping.cancel()
        await asyncio.wait([keeping])
    assert logs[0]["event"] == "cannot clean up the storage now"


@pytest.mark.req("SAFE-6")
async def test_a_file_among_the_folders_of_graphs_is_nobodys(bench: Bench) -> None:
    bench.layout.graphs.mkdir(parents=True, exist_ok=True)
    (bench.layout.graphs / "notes.txt").touch()
    await bench.keeper.purge()
    assert (bench.layout.graphs / "notes.txt").exists()


def warned(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Job, place and end of each warning that something is removed soon."""
    soon = [entry for entry in logs if entry["event"] == "the data of a damaged job will be removed soon"]
    return [(entry["job"], *entry["places"], entry["after"]) for entry in soon]


@pytest.mark.req("SAFE-3")
async def test_what_is_damaged_goes_after_its_period_and_a_warning(bench: Bench, tmp_path: Path) -> None:
    bench.kept = {UNKNOWN: 0, job_id(1): 500}
    with capture_logs() as logs:
        await bench.clean_at(8999)
        assert not warned(logs)
        await bench.clean_at(9000)
    assert warned(logs) == [(UNKNOWN, f"/store/{UNKNOWN}", "1970-01-01T02:46:40+00:00")]
    following = Bench(tmp_path)
    following.kept = bench.kept
    await following.clean_at(9999)
    assert set(following.kept) == {UNKNOWN, job_id(1)}
    await following.clean_at(10000)
    assert set(following.kept) == {job_id(1)}


@pytest.mark.req("SAFE-3")
async def test_a_cluster_that_was_down_at_the_end_of_the_period_warns_first(bench: Bench) -> None:
    bench.kept = {UNKNOWN: 0}
    with capture_logs() as logs:
        await bench.clean_at(50000)
        await bench.clean_at(50999)
    assert len(warned(logs)) == 1
    assert bench.kept
    await bench.clean_at(51000)
    assert not bench.kept


@pytest.mark.req("SAFE-3")
async def test_a_person_is_told_what_is_damaged_and_until_when_it_is_kept(bench: Bench) -> None:
    bench.kept = {UNKNOWN: 0, job_id(1): 500}
    await bench.clean_at(9100)
    told = await bench.keeper.status()
    assert [(data.jobid, data.kind, data.known, data.marked, data.due) for data in told.data] == [
        (UNKNOWN, "damaged", True, 9_100_000, 10_100_000),
        (job_id(1), "damaged", True, -1, 10_500_000),
    ]


@pytest.mark.req("SAFE-3")
@pytest.mark.parametrize("hindrance", ["storage", "leader", "graphs"])
async def test_what_is_damaged_stays_while_it_is_not_sure_that_it_may_go(bench: Bench, hindrance: str) -> None:
    bench.kept = {UNKNOWN: 0}
    await bench.clean_at(9000)
    bench.seconds = 20000
    match hindrance:
        case "storage":
            bench.give_to(place_id="other")
        case "leader":
            bench.leads = False
        case _:
            bench.graphs_away = True
    if hindrance == "graphs":
        await bench.keeper.clean()
    else:
        with pytest.raises(EmberkeepError):
            await bench.keeper.clean()
    assert bench.kept


@pytest.mark.req("SAFE-15")
async def test_a_purge_leaves_what_is_damaged(bench: Bench) -> None:
    bench.kept = {UNKNOWN: 0}
    await bench.keeper.purge()
    assert bench.kept
