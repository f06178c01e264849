"""Scripted jobs for the simulator: what a user's script does, the Spark beside it, driver and executor processes.

The driver follows ``daemons.driver``: the script starts only when the JobManager has accepted the attempt; the outcome
is first written to disk, then reported; a refusal ends the process at once.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT, DRIVER_LEASE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater, Unavailable
from emberkeep.base.ids import ExecutorId, JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.lease import CONFIRMED_SHARE, AttemptLease
from emberkeep.jobmaster.ports import Application, DynamicAllocation, ExecutorDemand, SparkQuestions, SparkView
from emberkeep.jobmaster.service import JobMasterService
from emberkeep.jobs.checkpoints import QueryCheckpoint, SavepointPointer
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.jobs.progress.records import ProgressRecord
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.lifecycle.machine import Noted, Step, StepDone
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import QueryProgress
from emberkeep.protocol.messages.task_managers import StartDriver
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.simulator.elastic.allocation import IDLE_TIMEOUT, SimAllocation
from tests.support.simulator.elastic.load import Load, LoadedQuery
from tests.support.simulator.machines import Machines, Process

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
REPORT_SECONDS = 10.0  # as in the real driver
SIGTERM_CODE = 143
STUCK = 0.1  # probability that a stream cannot be stopped between two micro-batches
STREAM = QueryProgress(
    id="1",
    run_id="1",
    name="stream",
    batch_id=0,
    timestamp="2026-01-01T00:00:00+00:00",
    num_input_rows=1,
    input_rows_per_second=1.0,
    processed_rows_per_second=1.0,
    state_rows=0,
    watermark="",
    status="",
    checkpoint_location="/checkpoints/1",
)
CONNECT_SECONDS = 10  # seconds after which an executor that does not reach its driver exits


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Behaviour of a job, sent as the job's first argument. Times are seconds of work."""

    seconds: float | None = 5.0  # None: streams until it is stopped
    exit_code: int = 0
    raises: bool = False
    sessions: int = 1
    session_after: float = 0.5
    stops_spark: bool = True
    ignores_sigterm: bool = False
    executors: int = 1  # with dynamic allocation the most
    dynamic: bool = False  # Spark changes the number of executors
    cores: int = 1
    memory_mb: int = 1024
    gpus: int = 0  # of each executor
    priority: int = 0
    namespace: str = ""
    gang: bool = False  # it gets all executors at once or none
    load: Load | None = None  # of a stream whose number of executors follows it
    steady: bool = False  # with dynamic allocation, it always wants the most executors
    lost_attempts: int = 0  # number of first attempts that are killed in the middle (out of memory)
    mute_attempts: int = 0  # number of first attempts that hang before their JobMaster is up
    setup: str = ""  # "fatal": cannot be set up; "retry": the first set-up fails
    bad_executors: bool = False  # every executor exits soon after its start
    decommissions: bool = True  # executors can hand over their blocks
    batch_seconds: float = 0.0  # duration of the micro-batch that runs during a savepoint or stop request
    savepoints_fail: float = 0.0  # probability that writing a savepoint fails
    after_stop: float = 0.3  # work of the script after its await returns


def script_of(arguments: tuple[str, ...]) -> Script:
    """Decode a job's script from its arguments."""
    return msgspec.json.decode(arguments[0], type=Script)


class Away(enum.Enum):
    """What happens to calls to a file system."""

    NOT = "works"
    FAILS = "fails"
    HANGS = "hangs"  # until it is back


@dataclass
class Truth:
    """What really happened in drivers, to compare with what the cluster reports."""

    script_starts: list[tuple[JobId, int, float, int]] = field(default_factory=list)  # …, virtual seconds, pid
    outcomes: dict[tuple[JobId, int], AttemptOutcome] = field(default_factory=dict)
    setup_failures: dict[tuple[JobId, int], str] = field(default_factory=dict)
    abandoned: dict[tuple[JobId, int], float] = field(default_factory=dict)
    commits: Counter[JobId] = field(default_factory=Counter)  # micro-batches of streams
    savepoints: Counter[str] = field(default_factory=Counter)  # number written, by trigger id
    discarded: Counter[str] = field(default_factory=Counter)  # left by a lost attempt, deleted by the next one
    deleted: Counter[str] = field(default_factory=Counter)  # savepoints deleted by retention, by trigger id
    released: set[JobId] = field(default_factory=set)  # jobs whose script has continued after its await
    marks: dict[JobId, int] = field(default_factory=dict)  # newest attempt with a mark in the shared storage
    unreadable: set[str] = field(default_factory=set)  # nodes that cannot read the shared storage
    savepoints_away: Away = Away.NOT
    on_commit: list[Callable[[JobId, int], None]] = field(default_factory=list)  # with the attempt

    def delete_savepoint(self, savepoint: SavepointPointer) -> None:
        """Delete the files of a savepoint, as retention does. Raises Unavailable."""
        if self.savepoints_away is not Away.NOT:
            raise Unavailable("the savepoints cannot be reached")
        self.deleted[savepoint.trigger_id] += 1

    def commit(self, job_id: JobId, attempt: int) -> QueryCheckpoint:
        """Commit a stream's next batch and return its checkpoint."""
        for told in self.on_commit:
            told(job_id, attempt)
        self.commits[job_id] += 1
        number = self.commits[job_id] - 1
        return QueryCheckpoint(
            query="stream",
            query_id="1",
            location="/checkpoints/1",
            batch_id=number,
            triggered_ms=number,
            committed_ms=number,
        )


class SimSpark:
    """Implements SparkDriver for a scripted job."""

    def __init__(self, process: Process, machines: Machines, configuration: Configuration, truth: Truth) -> None:
        self.process = process
        self.executors: dict[ExecutorId, Process] = {}
        self.application: Application | None = None
        self.failure: AttemptOutcome | None = None
        self.cordoned: frozenset[ExecutorId] = frozenset()
        self.allocation: SimAllocation | None = None  # of the application, if its number of executors changes
        self.query: LoadedQuery | None = None  # of the application, if its load is known
        self.streams = False  # each view commits a micro-batch, while there is an executor
        self.lease: AttemptLease | None = None  # of a stream
        self.stopped = False  # the stream is stopped between two micro-batches
        self._machines = machines
        self._configuration = configuration
        self._truth = truth
        self._changed = asyncio.Event()
        self.has_waiting_task = False
        self.released = asyncio.Event()  # set when the script may continue after its await

    async def view(self, asked: SparkQuestions) -> SparkView | None:
        await asyncio.sleep(0.005)  # time of a call into the JVM
        self.cordoned = asked.cordoned & self.executors.keys()
        if self.application is None:
            return None
        own = self.process.key
        commits = self.commits and isinstance(own, DriverKey) and await self._may_commit(own)
        return SparkView(
            executors=frozenset(self.executors),
            takers=frozenset(self.executors) if asked.leaving else frozenset(),
            cordoned=self.cordoned,
            silent=frozenset(
                key for key in asked.doubted & self.executors.keys() if not self._hears(self.executors[key])
            ),
            queries=(STREAM,) if self.streams and not self.stopped else (),
            work=AttemptWork(active_stages=1, active_tasks=len(self.executors)),
            commits=(self._truth.commit(own.job_id, own.attempt),) if commits and isinstance(own, DriverKey) else (),
            reports=self._ended_batches(),
        )

    def _ended_batches(self) -> tuple[ProgressRecord, ...]:
        if self.query is None:
            return ()
        working = len(self.executors.keys() - self.cordoned)
        return self.query.ended(self._machines.loop.time(), working, self.process.machine.clock.now_ms())

    async def _may_commit(self, own: DriverKey) -> bool:
        """True if a batch that ends now may be committed, as in the real driver: see ``MarkWatch``."""
        assert self.lease is not None, "a stream has one"
        too_early = self.lease.ask_to_commit()
        if self.lease.may_commit(too_early):
            return True
        reading = self.lease.begin_reading()
        await asyncio.sleep(0.01)  # time of a look into the storage
        if self.process.machine.name not in self._truth.unreadable:
            newest = self._truth.marks.get(own.job_id, 0)
            if newest > own.attempt:
                self._machines.history.count("attempt ended by a mark")
                await self.abandon(f"attempt {newest} has begun")
            self.lease.marks_read(reading)
        return self.lease.may_commit(too_early)

    @property
    def commits(self) -> bool:
        """True if micro-batches are being committed."""
        return self.streams and bool(self.executors.keys() - self.cordoned) and not self.stopped

    def has_dismissed(self, executor: Process) -> bool:
        """True if dynamic allocation removes this executor."""
        return self.allocation is not None and self.allocation.has_dismissed(executor)

    def _hears(self, executor: Process) -> bool:
        return not executor.frozen and self._machines.network.passes(executor.party, self.process.party)

    async def demand(self) -> ExecutorDemand | None:
        await asyncio.sleep(0.005)
        if self.application is None or self.allocation is None:
            return None
        return self.allocation.demand(self.application.app_id)

    async def resize(self, count: int, *, decommissions: bool) -> None:
        del decommissions
        await asyncio.sleep(0.005)
        if self.application is None or self.allocation is None:
            raise RetryLater("no SparkContext is up")
        self.allocation.resize(count)

    async def remove_executor(self, executor_id: ExecutorId, reason: str) -> None:
        await asyncio.sleep(0.005)
        executor = self.executors.pop(executor_id, None)
        if executor is not None:
            self._machines.history.add(self.process.name, f"Spark drops executor {executor_id}: {reason}")
            if self._hears(executor):  # Spark orders it to end
                self._end(executor, 0.2, 1)

    def _end(self, executor: Process, seconds: float, code: int) -> None:
        context = executor.party.scope.context
        self._machines.loop.call_later(seconds, self._machines.exit, executor, code, context=context)

    async def fail(self, message: str) -> None:
        self._machines.history.add(self.process.name, f"cannot continue: {message}")
        self.failure = AttemptOutcome(exit_code=1, kind=FailureKind.RESOURCES, message=message)
        self.process.outcome = self.failure
        self.process.term.set()
        await asyncio.sleep(self._configuration[CANCELLATION_TIMEOUT])
        self._machines.kill(self.process)

    def leave(self, outcome: AttemptOutcome) -> None:
        """End the driver with ``outcome``, after the stream was stopped between two micro-batches."""
        self._machines.history.count("driver left")
        self.failure = outcome
        self.process.term.set()

    async def abandon(self, message: str) -> None:
        key = self.process.key
        assert isinstance(key, DriverKey)
        self._machines.history.add(self.process.name, f"abandons: {message}")
        self._machines.history.count("attempt abandoned")
        self._truth.abandoned[key.job_id, key.attempt] = self._machines.loop.time()
        self._machines.kill(self.process)
        await asyncio.get_running_loop().create_future()  # nothing after this line ever runs

    def register(self, executor: Process) -> None:
        """Add an executor that has connected."""
        assert isinstance(executor.key, ExecutorKey)
        self.executors[executor.key.executor_id] = executor
        self._changed.set()

    def disconnected(self, executor: Process) -> None:
        """Remove an executor whose connection broke."""
        assert isinstance(executor.key, ExecutorKey)
        self.executors.pop(executor.key.executor_id, None)

    async def some_executor(self) -> None:
        """Wait until an executor is registered: a task waits for it."""
        self.has_waiting_task = True
        while not self.executors:
            self._changed.clear()
            await self._changed.wait()
        self.has_waiting_task = False


class SimSteps:
    """ProcedureSteps of a scripted driver: its stream stops between two micro-batches, or sometimes cannot."""

    def __init__(self, work: DriverWork) -> None:
        self._spark = work.spark
        self._script = work.script
        self._clock = work.system.clock
        self._truth = work.truth
        self._job_id = work.request.graph.job_id
        self._rng = work.system.rng
        self._begun = work.request.procedure

    async def run(self, step: Step, request: ProcedureRequest, reason: str) -> StepDone:
        await asyncio.sleep(self._rng.uniform(0.01, 2.0))
        moves = request.procedure is Procedure.MOVE
        if step is Step.FINISH_BATCHES and moves and self._rng.random() < STUCK:
            raise Fatal("a micro-batch does not end")
        if step is Step.CHECK and self._begun is not None and self._begun.trigger_id == request.trigger_id:
            self._truth.discarded[request.trigger_id] = self._truth.savepoints[request.trigger_id]
        if step in (Step.CHECK, Step.WRITE_SAVEPOINT):
            await self._reach_savepoints()
        if step in (Step.FINISH_BATCHES, Step.PAUSE):
            await self._finish(request)
        if step is Step.FINISH_BATCHES:
            self._spark.stopped = True
        elif step is Step.START_QUERIES:
            self._spark.stopped = False
        elif step in (Step.LEAVE, Step.FAIL_ATTEMPT):
            kind = FailureKind.MOVED if step is Step.LEAVE else FailureKind.LOST
            self._spark.leave(AttemptOutcome(exit_code=1, kind=kind, message=reason or "the driver leaves"))
        elif step is Step.WRITE_SAVEPOINT:
            return self._write(request)
        elif step is Step.END_SCRIPT_WAIT:
            self._truth.released.add(self._job_id)
            self._spark.released.set()
        return StepDone(request.trigger_id, step)

    async def _reach_savepoints(self) -> None:
        while self._truth.savepoints_away is Away.HANGS:  # noqa: ASYNC110  # a fault sets it, and wakes nobody
            await asyncio.sleep(0.5)
        if self._truth.savepoints_away is Away.FAILS:
            raise Unavailable("the savepoints cannot be reached")

    async def _finish(self, request: ProcedureRequest) -> None:
        left = (request.deadline_ms - self._clock.now_ms()) / 1000
        if request.deadline_ms and left < self._script.batch_seconds:
            await asyncio.sleep(max(0.0, left))
            raise Fatal("a micro-batch did not end in time")
        await asyncio.sleep(self._script.batch_seconds)

    def _write(self, request: ProcedureRequest) -> StepDone:
        if self._script.savepoints_fail and self._rng.random() < self._script.savepoints_fail:
            raise Fatal("no space left on device")
        self._truth.savepoints[request.trigger_id] += 1
        path = f"{request.target_directory}/{request.trigger_id}"
        return StepDone(request.trigger_id, Step.WRITE_SAVEPOINT, path, f"{int(request.trigger_id, 16):064x}")

    def noted(self) -> Noted | None:
        return None

    def is_fulfilled(self, request: ProcedureRequest) -> bool:
        again = self._begun is not None and self._begun.trigger_id == request.trigger_id
        return again and request.procedure is Procedure.MOVE


@dataclass
class DriverWork:
    """The driver process of one attempt. ``run`` is its main program."""

    process: Process
    request: StartDriver
    machines: Machines
    configuration: Configuration
    system: System
    truth: Truth
    address: str
    sparks: dict[str, SimSpark]  # by driver URL
    slow_ends: float = 0.0  # probability that an executor takes seconds to end

    def __post_init__(self) -> None:
        self.script = script_of(self.request.graph.arguments)
        self.spark = SimSpark(self.process, self.machines, self.configuration, self.truth)
        self.spark.streams = self.script.seconds is None
        self._allocating: asyncio.Task[None] | None = None
        self.key = (self.request.graph.job_id, self.request.attempt)
        identity = Identity(
            job_id=self.request.graph.job_id,
            attempt=self.request.attempt,
            address=self.address,
            task_manager=TaskManagerId(self.process.owner),
            pid=self.process.pid,
            lineage=self.request.lineage,
            epoch=self.request.epoch,
        )
        self.service = JobMasterService(
            self.system,
            self.configuration,
            self.machines.network.client(self.process.party),
            self.spark,
            identity,
            self.request.job_manager,
        )
        self.service.master.procedures.steps = SimSteps(self)
        if self.spark.streams:
            lease = AttemptLease(self.configuration[DRIVER_LEASE] * CONFIRMED_SHARE, self.system.clock.monotonic)
            self.spark.lease = self.service.master.link.lease = lease

    async def run(self) -> None:
        """Start the JobMaster, then the script; then write and report its outcome, and exit."""
        if self.request.attempt <= self.script.mute_attempts:
            await asyncio.get_running_loop().create_future()  # hangs before the JobMaster is up
        self.machines.network.listen_rpc(self.address, self.process.party, self.service)
        serving = asyncio.create_task(self.service.run(), name="JobMaster")
        serving.add_done_callback(self._job_master_ended)
        outcome = await self._run_until_term()
        self._stop_application()
        # Disk first: the task manager finds the outcome there even if no JobManager replies now.
        self._write(outcome)
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                await self.service.report_outcome(outcome)
        except (EmberkeepError, TimeoutError) as error:
            self.machines.history.add(self.process.name, f"outcome not delivered: {error}")
        self.machines.exit(self.process, outcome.exit_code)

    def _write(self, outcome: AttemptOutcome) -> None:
        self.process.outcome = outcome
        self.truth.outcomes[self.key] = outcome
        self.machines.history.add(self.process.name, f"script ends: {outcome.exit_code} {outcome.message}")

    def _job_master_ended(self, serving: asyncio.Task[None]) -> None:
        if self.process.alive and not serving.cancelled() and serving.exception() is not None:
            self.machines.history.violate("bug", f"JobMaster of {self.process.name} died: {serving.exception()!r}")
            self.machines.kill(self.process)

    async def _run_until_term(self) -> AttemptOutcome:
        script = asyncio.create_task(self._play(), name="script")
        if self.script.ignores_sigterm:
            return await script
        told = asyncio.create_task(self.process.term.wait(), name="SIGTERM")
        await asyncio.wait({script, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if script.done():
            return script.result()
        script.cancel()
        return self.spark.failure or AttemptOutcome(
            exit_code=SIGTERM_CODE, kind=FailureKind.LOST, message="the script was ended by SIGTERM"
        )

    async def _play(self) -> AttemptOutcome:
        await self.service.master.registered.wait()
        self._write_mark()
        self.truth.script_starts.append((*self.key, self.machines.loop.time(), self.process.pid))
        self.machines.history.add(self.process.name, "script starts")
        await asyncio.sleep(self.script.session_after)
        for number in range(self.script.sessions):
            self._start_application(number)
            await self._work()
            if self.script.stops_spark or number + 1 < self.script.sessions:
                self._stop_application()
        if self.script.sessions == 0:
            await asyncio.sleep(self.script.seconds or 1.0)
        if self.script.raises:
            return AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="ValueError: as the script says")
        if self.script.exit_code:
            message = f"the script exited with code {self.script.exit_code}"
            return AttemptOutcome(exit_code=self.script.exit_code, kind=FailureKind.SCRIPT, message=message)
        return AttemptOutcome(exit_code=0)

    def _write_mark(self) -> None:
        job_id, attempt = self.key
        self.truth.marks[job_id] = max(attempt, self.truth.marks.get(job_id, 0))

    async def _work(self) -> None:
        if self.script.seconds is None:
            await self.spark.released.wait()
            await asyncio.sleep(self.script.after_stop)
            return
        half = self.script.seconds / self.script.sessions / 2
        await self.spark.some_executor()
        await asyncio.sleep(half)
        if self.request.attempt <= self.script.lost_attempts:
            self.machines.kill(self.process)
        await asyncio.sleep(half)
        await self.spark.some_executor()  # the last task needs an executor too

    def _start_application(self, number: int) -> None:
        url = f"spark://CoarseGrainedScheduler@{self.address}/{number}"
        requirement = SlotRequirement(
            count=1 if self.script.dynamic else self.script.executors,
            profile=ResourceProfile(
                cores=self.script.cores, memory_mb=self.script.memory_mb, custom=amounts({"gpu": self.script.gpus})
            ),
            runtime=RUNTIME,
        )
        self.sparks[url] = self.spark
        self.spark.application = Application(
            app_id=f"app-{self.process.pid}-{number}",
            driver_url=url,
            requirement=requirement,
            heap_mb=self.script.memory_mb * 3 // 4,
            java_options=(),
            extra_class_path="",
            environ={"SIM_BAD": "1"} if self.script.bad_executors else {},
            auth_secret="",
            python_path=(),
            decommissions=self.script.decommissions,
            dynamic=self._dynamic(),
        )
        self._allocate()
        self.service.master.application_started(self.spark.application)

    def _dynamic(self) -> DynamicAllocation | None:
        if self.script.load is not None:
            settings = self.script.load.autoscale
            return DynamicAllocation(
                minimum=settings.minimum, maximum=settings.maximum, idle_timeout=IDLE_TIMEOUT, autoscale=settings
            )
        if not self.script.dynamic:
            return None
        return DynamicAllocation(minimum=0, maximum=self.script.executors, idle_timeout=IDLE_TIMEOUT)

    def _allocate(self) -> None:
        """Let Spark change the number of executors until the application stops."""
        if self.script.dynamic or self.script.load is not None:
            least = self.script.executors if self.script.steady else 1 if self.script.seconds is None else 0
            spark = self.spark
            spark.allocation = SimAllocation(
                least,
                self.script.executors,
                spark.executors,
                lambda: spark.cordoned,
                lambda: spark.has_waiting_task,
                self.machines,
                self.system.rng,
            )
            if self.script.load is not None:
                spark.query = LoadedQuery(self.script.load, self.machines.loop.time())
            else:
                self._allocating = asyncio.create_task(spark.allocation.run(), name="allocation")

    def _stop_application(self) -> None:
        if self._allocating is not None:
            self._allocating.cancel()
            self._allocating = None
        self.spark.allocation = self.spark.query = None
        if self.spark.application is None:
            return
        self.sparks.pop(self.spark.application.driver_url, None)
        self.spark.application = None
        for executor in list(self.spark.executors.values()):
            slow = self.slow_ends and self.system.rng.random() < self.slow_ends
            seconds = self.system.rng.uniform(1.0, 12.0) if slow else 0.2
            context = executor.party.scope.context
            self.machines.loop.call_later(seconds, self.machines.exit, executor, 0, context=context)
        self.spark.executors.clear()
        self.service.master.application_stopped()


@dataclass
class ExecutorWork:
    """An executor process. It ends with its driver, unless ``clings``: then it behaves as one that is cut off."""

    process: Process
    driver_url: str
    bad: bool
    clings: bool
    machines: Machines
    sparks: dict[str, SimSpark]
    rng: random.Random

    async def run(self) -> None:
        """Connect to the driver; from then on the executor ends with the driver."""
        await asyncio.sleep(self.rng.uniform(0.2, 1.5))
        if self.bad:
            self.machines.exit(self.process, 1)
            return
        spark = await self._connect()
        if spark is None:
            self.machines.exit(self.process, 1)
            return
        spark.register(self.process)
        self.process.on_exit.append(spark.disconnected)
        self.machines.history.add(self.process.name, "executor registers with its driver", routine=True)
        if not self.clings:
            spark.process.on_exit.append(self._driver_gone())

    async def _connect(self) -> SimSpark | None:
        for _ in range(CONNECT_SECONDS):
            spark = self.sparks.get(self.driver_url)
            if spark is None or not spark.process.alive:
                if not self.clings:
                    return None
            elif self.machines.network.passes(self.process.party, spark.process.party):
                return spark
            await asyncio.sleep(1.0)
        return None

    def _driver_gone(self) -> Callable[[Process], None]:
        def told(_: Process) -> None:
            self.machines.loop.call_later(
                0.3, self.machines.exit, self.process, 1, context=self.process.party.scope.context
            )

        return told
