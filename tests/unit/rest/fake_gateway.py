"""A JobManager that lives in dictionaries, and samples of what it shows."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import msgspec

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.blobs.model import BlobContent, permanent
from emberkeep.blocklist.model import Blocked, Blocklist, Place
from emberkeep.blocklist.tracker import BlocklistTracker
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.blocklist import Blocking
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import (
    JobManagerGateway,
    JobView,
    Stranger,
    Submission,
    TaskManagerView,
    UsageView,
)
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobmanager.views.jobs import brief_of
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish
from emberkeep.jobs.model import (
    AttemptOutcome,
    AttemptRecord,
    EntryPoint,
    EntryPointKind,
    ExceptionEntry,
    FailureKind,
    JobGraph,
    JobResources,
    JobStatus,
)
from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.jobs.progress.totals import QueryTotals
from emberkeep.jobs.progress.work import AttemptWork, ExecutorWork, StageProgress
from emberkeep.jobs.traces.recovery_trace import Milestone, Reached, RecoveryCause, RecoveryTrace
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.jobs.upgrades.words import upgrade_text
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import ExecutorView, JobMasterStatus, QueryProgress
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState, TaskManagerReport
from emberkeep.slots.model import (
    Allocation,
    ProcessStart,
    ResourceProfile,
    RuntimeVersions,
    SlotRequirement,
    TaskManagerInfo,
)
from emberkeep.usage.histories import UsageHistories
from emberkeep.usage.history import EARLIER_STEPS, SHORTEST_STEP_MS

NOW_MS = 1_795_000_000_000
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
PROFILE = ResourceProfile(cores=2, memory_mb=1408)


class FakeGateway(JobManagerGateway):
    """State is public: tests set it. ``refusal``, when set, is raised by every call that asks for something."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.views: dict[JobId, JobView] = {}
        self.managers: dict[TaskManagerId, TaskManagerView] = {}
        self.usages = UsageHistories(SHORTEST_STEP_MS)
        self.refusal: EmberkeepError | None = None
        self.leading_epoch = 3
        self.confirmed: bool | None = True  # None: another one leads
        self.led_for_ms = 3_600_000
        self.cancelled: list[tuple[JobId, float | None]] = []
        self.stopped: list[tuple[TaskManagerId, float]] = []
        self.listings: Counter[str] = Counter()  # of all jobs in brief; how many jobs lists have read in detail
        self.disposed: list[str] = []  # savepoints that are being deleted
        self.upgrade_steps: list[dict[str, object]] = []  # what each look at an upgrade changes; the last one stays
        self.wishes: list[tuple[JobId, UpgradeWish]] = []
        self.procedures: dict[tuple[JobId, str], ProcedureView] = {}
        self._keys: dict[str, JobId] = {}
        self.blocked = BlocklistTracker(Blocklist())
        self.lost_blocklist = ""
        self.others: tuple[Stranger, ...] = ()
        self.election: ElectionView | None = None  # shown by the page of leaders
        self.blobs: BlobServerGateway | None = None  # claims the artefacts of submissions, where there is one

    def add(self, *views: JobView) -> None:
        for view in views:
            self.views[view.job_id] = view

    def add_task_managers(self, *views: TaskManagerView) -> None:
        for view in views:
            self.managers[view.info.id] = view

    def change(self, job_id: JobId, **changes: object) -> None:
        self.views[job_id] = msgspec.structs.replace(self.views[job_id], **changes)

    async def blocklist_problem(self) -> str:
        self._maybe_refuse()
        return self.lost_blocklist

    async def blocklist(self) -> Blocklist:
        self._readable_blocklist()
        return self.blocked.blocklist

    def _readable_blocklist(self) -> None:
        self._maybe_refuse()
        if self.lost_blocklist:
            raise RetryLater(f"the blocklist cannot be read: {self.lost_blocklist}")
        over = [entry for entry in self.blocked.blocklist.entries if entry.end_ms <= self.now_ms]
        self.blocked.expire(over, self.now_ms)

    async def block(self, entry: Blocked, *, merge: bool, keep_drivers: bool = False) -> Blocking:
        self._readable_blocklist()
        made, merged = self.blocked.put(entry, merge=merge, keep_drivers=keep_drivers)
        return Blocking(entry=made, merged=merged)

    async def unblock(self, place: Place) -> None:
        self._readable_blocklist()
        self.blocked.remove(place, self.now_ms)

    def epoch(self) -> int:
        return self.leading_epoch

    def started_ms(self) -> int:
        return NOW_MS - self.led_for_ms

    def address(self) -> str:
        return "127.0.0.1:8081"

    @contextlib.asynccontextmanager
    async def disposing(self, path: str) -> AsyncIterator[None]:
        self._maybe_refuse()
        self.disposed.append(path)
        try:
            yield
        finally:
            self.disposed.remove(path)

    async def is_confirmed(self) -> bool:
        if self.confirmed is None:
            raise RetryLater("this JobManager no longer leads")
        return self.confirmed

    async def submit(self, graph: JobGraph) -> Submission:
        self._maybe_refuse()
        known = self._keys.get(graph.idempotency_key)
        if known is not None:
            return Submission(job_id=known, created=False)
        if graph.job_id in self.views:
            raise Conflict(f"job id {graph.job_id} is taken by another submission")
        if graph.savepoint and any(is_same_place(each, graph.savepoint) for each in self.disposed):
            raise RetryLater(f"the savepoint {graph.savepoint} is being deleted")
        if self.blobs is not None:
            contents = [BlobContent(sha256=item.sha256, size=item.size) for item in graph.artefacts]
            await self.blobs.claim(graph.job_id, contents)
            self.blobs.job_submitted(graph.job_id, [permanent(item.sha256) for item in graph.artefacts])
        self._keys[graph.idempotency_key] = graph.job_id
        self.add(new_job_view(graph))
        return Submission(job_id=graph.job_id, created=True)

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        view = await self.job(job_id)
        if view.status.is_globally_terminal and view.status is not JobStatus.CANCELED:
            raise Conflict(f"job {job_id} has ended: it is {view.status.value}")
        self.cancelled.append((job_id, grace))
        times = {**view.status_times_ms, JobStatus.CANCELLING: self.now_ms, JobStatus.CANCELED: self.now_ms}
        self.change(
            job_id,
            status=JobStatus.CANCELED,
            ended_ms=self.now_ms,
            status_times_ms=times,
            driver_pid=0,
            procedure=None,
        )

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        view = await self.job(job_id)
        if view.status.is_globally_terminal:
            raise Conflict(f"job {job_id} has ended: it is {view.status.value}")
        request = with_defaults(request, Configuration(), view.graph, "/default")
        if (job_id, request.trigger_id) in self.procedures:
            return request
        for known in self.procedures.values():
            if known.job_id == job_id and known.phase not in (ProcedurePhase.COMPLETED, ProcedurePhase.FAILED):
                raise Conflict(f"job {job_id} is busy (request {known.trigger_id})")
        made = ProcedureView(job_id=job_id, trigger_id=request.trigger_id, request=request)
        self.procedures[job_id, request.trigger_id] = made
        self.change(job_id, procedure=made)
        return request

    async def upgrade(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        self._maybe_refuse()
        self.wishes.append((job_id, wish))
        upgrade = upgrade_of(self.views[job_id], wish, self.now_ms)
        made = UpgradeView(upgrade=upgrade, text=upgrade_text(upgrade))
        self.change(job_id, upgrade=made)
        return made

    async def upgrade_of(self, job_id: JobId) -> UpgradeView:
        found = (await self.job(job_id)).upgrade
        if found is None:
            raise Absent(f"job {job_id} is part of no upgrade that is known")
        if self.upgrade_steps:
            step = self.upgrade_steps.pop(0) if len(self.upgrade_steps) > 1 else self.upgrade_steps[0]
            changed = msgspec.structs.replace(found.upgrade, **step)
            await self._accept_followers(changed)
            found = UpgradeView(upgrade=changed, text=upgrade_text(changed))
        return found

    async def _accept_followers(self, upgrade: Upgrade) -> None:
        """Accept the job that the upgrade's phase means, and end the old one."""
        wish = next(wish for _, wish in self.wishes if wish.upgrade_id == upgrade.upgrade_id)
        follower = {UpgradePhase.DONE: wish.new, UpgradePhase.RETURNED: wish.back}.get(upgrade.phase)
        if follower is None or follower.job_id in self.views:
            return
        if upgrade.job_id in self.views:
            self.change(upgrade.job_id, status=JobStatus.FINISHED)
        key = f"{upgrade.upgrade_id}-{upgrade.phase.value}"
        graph = msgspec.structs.replace(follower, savepoint=upgrade.savepoint, idempotency_key=key)
        self.add(new_job_view(graph))
        self.change(graph.job_id, submitted_ms=self.now_ms + len(self.views), status=JobStatus.RUNNING)

    async def cancel_upgrade(self, job_id: JobId) -> UpgradeView:
        self._maybe_refuse()
        found = await self.upgrade_of(job_id)
        changed = UpgradeView(upgrade=msgspec.structs.replace(found.upgrade, canceled_by="someone"), text=found.text)
        self.change(job_id, upgrade=changed)
        return changed

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        await self.job(job_id)
        try:
            return self.procedures[job_id, trigger_id]
        except KeyError:
            raise Absent(f"job {job_id} has no request {trigger_id}") from None

    async def jobs(self) -> list[JobView]:
        self.listings["details"] += len(self.views)
        return self._newest_first()

    async def briefs(self) -> list[JobBrief]:
        self.listings["briefs"] += 1
        return list(map(brief_of, self._newest_first()))

    async def jobs_of(self, job_ids: Sequence[JobId]) -> list[JobView]:
        self._maybe_refuse()
        self.listings["details"] += len(job_ids)
        return [self.views[job_id] for job_id in job_ids if job_id in self.views]

    def _newest_first(self) -> list[JobView]:
        self._maybe_refuse()
        return sorted(self.views.values(), key=lambda view: view.submitted_ms, reverse=True)

    async def job(self, job_id: JobId) -> JobView:
        self._maybe_refuse()
        try:
            return self.views[job_id]
        except KeyError:
            raise Absent(f"there is no job {job_id}", hint="GET /v1/jobs lists all") from None

    def strangers(self) -> tuple[Stranger, ...]:
        return tuple(sorted(self.others, key=lambda other: other.id))

    async def task_managers_by_node(self) -> dict[str, list[TaskManagerId]]:
        self._maybe_refuse()
        found: dict[str, list[TaskManagerId]] = {}
        for key, view in sorted(self.managers.items()):
            found.setdefault(view.info.node_id, []).append(key)
        return found

    async def task_managers(self) -> list[TaskManagerView]:
        self._maybe_refuse()
        return sorted(self.managers.values(), key=lambda view: view.info.id)

    async def stop_task_manager(self, task_manager_id: TaskManagerId, *, drain: float) -> None:
        await self.task_manager(task_manager_id)
        self.stopped.append((task_manager_id, drain))

    async def task_manager(self, task_manager_id: TaskManagerId) -> TaskManagerView:
        self._maybe_refuse()
        try:
            return self.managers[task_manager_id]
        except KeyError:
            raise Absent(
                f"no task manager {task_manager_id} is registered", hint="GET /v1/taskmanagers lists them"
            ) from None

    async def usage(self, task_manager_id: TaskManagerId | None, *, after_ms: int) -> UsageView:
        report = None if task_manager_id is None else (await self.task_manager(task_manager_id)).report
        history = self.usages.cluster if task_manager_id is None else self.usages.of(task_manager_id)
        return UsageView(
            since_ms=history.since_ms,
            step_ms=self.usages.step_ms,
            memory_total_mb=0 if report is None else report.memory_total_mb,
            disk_total_mb=0 if report is None else report.disk_total_mb,
            samples=history.samples(after_ms),
            earlier_step_ms=EARLIER_STEPS * self.usages.step_ms,
            earlier=history.earlier(after_ms),
        )

    def _maybe_refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


def job_id(number: int) -> JobId:
    return JobId(f"{number:032x}")


def job_graph(identifier: JobId, name: str, **changes: object) -> JobGraph:
    graph = JobGraph(
        job_id=identifier,
        name=name,
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="flights.py"),
        arguments=("--input", "data/flights"),
        artefacts=(),
        spark_conf={"spark.sql.shuffle.partitions": "8", "spark.hadoop.fs.s3a.secret.key": "hunter2"},
        options={"restart-strategy.type": "fixed-delay"},
        working_directory="/data",
        resources=JobResources(
            driver_memory_mb=512,
            driver_overhead_mb=384,
            executors=3,
            executor_cores=2,
            executor_memory_mb=1024,
            executor_overhead_mb=384,
        ),
        python="3.11",
        submitted_ms=NOW_MS - 754_000,
        idempotency_key=f"key-{identifier}",
    )
    return msgspec.structs.replace(graph, **changes)


def status_report(**changes: object) -> JobMasterStatus:
    """Three slots wanted; two executors can be used, one is starting."""
    report = JobMasterStatus(
        sequence=17,
        requirements=(SlotRequirement(count=3, profile=PROFILE, runtime=RUNTIME),),
        executors=tuple(_executor(number) for number in (1, 2, 3)),
        queries=(_query(),),
        active_stages=1,
        active_tasks=4,
        completed_tasks=1238,
        failed_tasks=2,
        work=AttemptWork(
            active_jobs=1,
            completed_jobs=11,
            active_stages=1,
            completed_stages=19,
            total_tasks=1600,
            active_tasks=4,
            completed_tasks=1238,
            failed_tasks=2,
            task_ms=800_000,
            gc_ms=16_000,
            shuffle_read=2 * 1024**2,
            shuffle_written=3 * 1024**2,
            spilled_memory=9 * 1024**2,
            spilled_disk=4 * 1024**2,
            executors=(ExecutorWork(executor_id="1", task_ms=400_000, gc_ms=50_000),),
            stages=(
                StageProgress(
                    stage_id=20,
                    stage_attempt=1,
                    name="count at flights.py:12",
                    operations="Scan csv → <Exchange>",
                    status="ACTIVE",
                    tasks=400,
                    active=4,
                    completed=38,
                    failed=2,
                    median_ms=1200,
                    slowest_ms=6000,
                    spilled_memory=5 * 1024**2,
                    spilled_disk=2 * 1024**2,
                ),
            ),
        ),
        app_id="app-20261120-0001",
        waiting="1 of 3 slots (2 cores and 1408 MiB each) is missing: all 6 slots are taken",
    )
    return msgspec.structs.replace(report, **changes)


def job_view(identifier: JobId, name: str, status: JobStatus = JobStatus.RUNNING, **changes: object) -> JobView:
    """A job on its second attempt, the first of which lost its driver."""
    submitted = NOW_MS - 754_000
    ended = NOW_MS - 60_000 if status.is_globally_terminal else None
    view = JobView(
        job_id=identifier,
        name=name,
        status=status,
        submitted_ms=submitted,
        ended_ms=ended,
        status_times_ms=_times(status, submitted),
        attempt=2,
        driver_task_manager=None if ended else TaskManagerId("tm-127.0.0.2-1"),
        driver_pid=0 if ended else 4711,
        exit_code={JobStatus.FINISHED: 0, JobStatus.FAILED: 1, JobStatus.CANCELED: 143}.get(status),
        root_cause="ValueError: no such airport: 'XXX'" if status is JobStatus.FAILED else "",
        waiting="",
        attempts=_attempts(submitted),
        exceptions=_exceptions(submitted),
        graph=job_graph(identifier, name),
        status_report=None if ended else status_report(),
        result=None,
    )
    return msgspec.structs.replace(view, **changes)


def new_job_view(graph: JobGraph) -> JobView:
    """Return the view of a job that has just been accepted."""
    return job_view(
        graph.job_id,
        graph.name,
        JobStatus.CREATED,
        graph=graph,
        submitted_ms=graph.submitted_ms,
        status_times_ms={JobStatus.CREATED: graph.submitted_ms},
        attempt=0,
        driver_task_manager=None,
        driver_pid=0,
        attempts=(),
        exceptions=(),
        status_report=None,
    )


def task_manager_view(number: int, *, drivers: tuple[DriverReport, ...] = (), taken: int = 1) -> TaskManagerView:
    """A task manager with two slots, ``taken`` of them allocated to job 1."""
    host = f"127.0.0.{number}"
    total = ResourceProfile(cores=4, memory_mb=8192)
    allocations = tuple(
        Allocation(
            id=AllocationId(f"{number:016x}{index:016x}"),
            slot_index=index,
            job_id=job_id(1),
            attempt=2,
            profile=PROFILE,
            job_master="127.0.0.2:41001",
        )
        for index in range(taken)
    )
    free = ResourceProfile(cores=4 - 2 * taken, memory_mb=8192 - 1408 * taken)
    return TaskManagerView(
        info=TaskManagerInfo(
            id=TaskManagerId(f"tm-{host}-1"),
            instance=InstanceId(f"{number:032x}"),
            address=f"{host}:40001",
            host=host,
            node_id=f"node-{number}",
            pid=3000 + number,
            slots=2,
            driver_places=4,
            total=total,
            runtime=RUNTIME,
            java_major=17,
            started_ms=NOW_MS - 7_200_000,
        ),
        report=TaskManagerReport(
            sequence=9,
            allocations=allocations,
            drivers=drivers,
            disk_free_mb=51_200,
            disk_total_mb=102_400,
            memory_used_mb=2_311,
            memory_total_mb=16_384,
            cpu_percent=37.5,
        ),
        last_heartbeat_ms=NOW_MS - 1200,
        free_slots=2 - taken,
        free_driver_places=4 - len(drivers),
        free_resources=free,
        away=False,
        blocked=False,
        evacuated=False,
    )


def driver_report(identifier: JobId) -> DriverReport:
    return DriverReport(job_id=identifier, attempt=2, state=ProcessState.RUNNING, pid=4711, memory_mb=896)


def _executor(number: int) -> ExecutorView:
    host = f"127.0.0.{number + 1}"
    return ExecutorView(
        executor_id=ExecutorId(str(number)),
        allocation_id=AllocationId(f"{number:032x}"),
        task_manager=TaskManagerId(f"tm-{host}-1"),
        host=host,
        state=ProcessState.RUNNING if number < 3 else ProcessState.STARTING,
        registered=number < 3,
        cores=2,
        heap_mb=1024,
        pid=5000 + number,
    )


def query_of_files() -> QueryProgress:
    """A query whose source counts files and bytes, and no rows."""
    metrics = {"numFilesOutstanding": 12.0, "numBytesOutstanding": 2048.0}
    source = SourceProgress(description="CloudFilesSource[/data/in]", metrics=metrics)
    return msgspec.structs.replace(_query(), backlog_rows=None, sources=(source,))


def _query() -> QueryProgress:
    return QueryProgress(
        id="8c1f64c4-52c2-4a4f-a9f4-9d6a0f0c8b1e",
        run_id="d2bfe4a7-6a1e-4b2c-b1b6-4c6fbb7c0c11",
        name="delays",
        batch_id=41,
        timestamp="2026-11-20T11:59:58.000Z",
        num_input_rows=4096,
        input_rows_per_second=2048.5,
        processed_rows_per_second=1987.25,
        state_rows=12_873,
        watermark="2013-07-14T03:10:00.000Z",
        status="Processing new data",
        checkpoint_location="file:/data/checkpoints/delays",
        state_bytes=5_242_880,
        backlog_rows=1_200,
        late_rows=3,
        state_commit_ms=120,
        totals=QueryTotals(
            batches=42, duration_ms=84_000, late_rows=17, phases={"addBatch": 70_000, "walCommit": 9_000}
        ),
        sources=(
            SourceProgress(
                description="KafkaV2[Subscribe[delays]]",
                input_rate=1500.5,
                processed_rate=1000.0,
                backlog_rows=1_000,
                metrics={"maxOffsetsBehindLatest": 600.0},
            ),
            SourceProgress(description="KafkaV2[Subscribe[delays]]", input_rate=548.0, backlog_rows=200),
        ),
    )


def _times(status: JobStatus, submitted: int) -> dict[JobStatus, int]:
    times = {JobStatus.CREATED: submitted, JobStatus.INITIALIZING: submitted + 900, JobStatus.RUNNING: submitted + 5200}
    if status.is_globally_terminal:
        times[status] = NOW_MS - 60_000
    elif status not in times:
        times[status] = NOW_MS - 2000
    return times


def _attempts(submitted: int) -> tuple[AttemptRecord, ...]:
    lost = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="the driver was killed by signal 9")
    return (
        AttemptRecord(
            attempt=1,
            task_manager=TaskManagerId("tm-127.0.0.3-1"),
            started_ms=submitted + 900,
            ended_ms=submitted + 300_000,
            outcome=lost,
        ),
        AttemptRecord(attempt=2, task_manager=TaskManagerId("tm-127.0.0.2-1"), started_ms=submitted + 302_000),
    )


def recovery_trace(began_ms: int = NOW_MS - 10_000, attempt: int = 2) -> RecoveryTrace:
    """The start after a lost driver, up to the SparkContext."""
    return RecoveryTrace(
        attempt=attempt,
        began_ms=began_ms,
        milestones=(
            Reached(Milestone.DETECTED, 0.0),
            Reached(Milestone.PLACED, 1.25),
            Reached(Milestone.PROCESS_STARTED, 1.5),
            Reached(Milestone.CONTEXT_UP, 4.0),
        ),
        cause=RecoveryCause.LOST,
        delay=1.0,
        start=ProcessStart.COLD,
        why_cold="another heap size",
    )


def _exceptions(submitted: int) -> tuple[ExceptionEntry, ...]:
    return (
        ExceptionEntry(
            timestamp_ms=submitted + 200_000,
            attempt=1,
            kind="ExecutorLost",
            message="executor 2 ended with signal 9",
            task_manager="tm-127.0.0.3-1",
        ),
        ExceptionEntry(
            timestamp_ms=submitted + 300_000,
            attempt=1,
            kind="DriverLost",
            message="the driver was killed by signal 9",
            traceback="the driver (pid 4002) was killed by signal 9\n  last lines of its log:\n  batch 17 …",
            task_manager="tm-127.0.0.3-1",
        ),
    )


def wish_of(view: JobView) -> UpgradeWish:
    """Return a wish to upgrade a job to its own code."""
    assert view.graph is not None
    new, back = (msgspec.structs.replace(view.graph, job_id=JobId(digit * 32)) for digit in "ab")
    return UpgradeWish(upgrade_id="c" * 32, new=new, back=back, batches=3, within_ms=600_000, restarts=2)


def upgrade_of(view: JobView, wish: UpgradeWish, now_ms: int) -> Upgrade:
    """Return the record of an upgrade that begins, without the graphs."""
    return Upgrade(
        upgrade_id=wish.upgrade_id,
        job_id=view.job_id,
        name=view.name,
        new_id=wish.new.job_id,
        back_id=wish.back.job_id,
        batches=wish.batches,
        within_ms=wish.within_ms,
        restarts=wish.restarts,
        phase=UpgradePhase.STOPPING,
        phase_ms=now_ms,
        began_ms=now_ms,
        target_directory=wish.target_directory or "/default",
        stop_deadline_ms=now_ms + 600_000,
        owner=view.owner,
        namespace=view.namespace,
    )
