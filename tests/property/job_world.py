"""A job machine in a hostile world: every effect may be answered late, twice, wrongly or never, and the true state of
drivers is kept beside the machine, so that what must never happen can be stated."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.jobs import events as ev
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import (
    AttemptOutcome,
    DriverHome,
    EntryPoint,
    EntryPointKind,
    FailureKind,
    JobGraph,
    JobResources,
    JobResult,
    JobStatus,
)
from emberkeep.jobs.policy import JobPolicy
from emberkeep.jobs.restart import FixedDelay, RestartStrategy
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.transitions import Phase

POLICY = JobPolicy(
    heartbeat_timeout=10.0,
    lease=20.0,
    start_timeout=120.0,
    place_timeout=300.0,
    grace=10.0,
    restarts_script_failures=False,
)
SUCCESS = AttemptOutcome(exit_code=0)
SCRIPT_FAILED = AttemptOutcome(exit_code=3, kind=FailureKind.SCRIPT, message="ValueError: no")
MOVED = AttemptOutcome(exit_code=0, kind=FailureKind.MOVED)
# All that may be concluded before the graph can be read.
DECIDE_WITHOUT_GRAPH = (ev.GraphRead, ev.GraphDamaged, ev.CancelRequested)
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")


def job_graph(**changes: object) -> JobGraph:
    values: dict[str, object] = {
        "job_id": JobId("a" * 32),
        "name": "flights",
        "entry_point": EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"),
        "arguments": (),
        "artefacts": (),
        "spark_conf": {},
        "options": {},
        "working_directory": "/",
        "resources": JobResources(
            driver_memory_mb=1024,
            driver_overhead_mb=384,
            executors=2,
            executor_cores=1,
            executor_memory_mb=1024,
            executor_overhead_mb=384,
        ),
        "python": "3.11",
        "submitted_ms": 1,
        "idempotency_key": "key",
    }
    return JobGraph(**{**values, **changes})  # type: ignore[arg-type]


def place(number: int, life: int = 1) -> ev.DriverPlace:
    return ev.DriverPlace(TaskManagerId(f"tm-{number}"), InstanceId(f"tm-{number}/{life}"), f"127.0.0.{number}:7000")


@dataclass
class TrueDriver:
    """What is really the case with one attempt's driver. ``accepted``: its JobMaster was let in, so the script runs."""

    attempt: int
    place: ev.DriverPlace
    alive: bool = True
    accepted: bool = False
    heard_at: float = 0.0


@dataclass
class JobWorld:
    """The machine with everything outside of it."""

    strategy: RestartStrategy = field(default_factory=lambda: FixedDelay(3, 5.0))
    policy: JobPolicy = POLICY
    stored_attempt: int = 0
    graph: JobGraph = field(default_factory=job_graph)
    now: float = 100.0
    drivers: dict[int, TrueDriver] = field(default_factory=dict)
    asked: list[ev.Effect] = field(default_factory=list)
    pending: list[ev.Effect] = field(default_factory=list)  # asked for, not answered
    refused: set[int] = field(default_factory=set)  # attempts whose order to stop came before that to start
    stored_result: JobResult | None = None
    terminal: JobStatus | None = None
    attempts_written: list[int] = field(default_factory=list)
    homes: dict[int, DriverHome | None] = field(default_factory=dict)  # as they are written with each attempt
    stopped: bool = False  # durable
    hears_since: float | None = 0.0  # the leader most of its peers

    def __post_init__(self) -> None:
        self._begin(ev.Begin())

    def _begin(self, begin: ev.Event) -> None:
        home = self.homes.get(self.stored_attempt)
        state = JobState(
            graph=self.graph,
            policy=self.policy,
            strategy=self.strategy,
            attempt=self.stored_attempt,
            home=home,
            stopped=self.stopped,
        )
        self.machine = JobMachine(state)
        self.tell(begin)

    def status(self) -> JobStatus:
        return self.machine.state.status

    def phase(self) -> Phase:
        return self.machine.state.phase

    def restart(self, *, without_graph: bool = False) -> None:
        """The JobManager died and a new one recovers the job, or cannot read its graph at present."""
        self.pending.clear()
        self._begin(ev.BeginWithoutGraph("/graph cannot be read now") if without_graph else ev.Begin())

    def read_graph(self) -> list[ev.Effect]:
        """The graph can be read again."""
        assert self.take(ev.ReadGraph) is not None
        return self.tell(ev.GraphRead(self.graph, self.policy, self.strategy))

    def tell(self, event: ev.Event, chance: float = 0.5) -> list[ev.Effect]:
        undecided = self.machine.state.phase is Phase.WITHOUT_GRAPH and not isinstance(event, DECIDE_WITHOUT_GRAPH)
        effects = self.machine.handle(event, Moment(self.now, int(self.now * 1000), chance, self.hears_since))
        for effect in effects:
            if isinstance(effect, ev.RecordAttempt):
                granted = self.machine.state.place
                self.homes[effect.attempt] = None if granted is None else granted.home
            self._check(effect)
            self.asked.append(effect)
            self.pending.append(effect)
        self.machine.check_invariants()
        if undecided:
            assert not effects, "nothing follows while the graph cannot be read (SAFE-1)"
            assert self.machine.state.phase is Phase.WITHOUT_GRAPH
        if self.terminal is not None:
            assert self.machine.state.status is self.terminal, "a final state never changes"
        if self.machine.state.status.is_globally_terminal:
            assert self.stored_result is not None, "a final state is shown only when it is durable"
            assert self.stored_result.status is self.machine.state.status
            self.terminal = self.machine.state.status
        return effects

    def _check(self, effect: ev.Effect) -> None:
        match effect:
            case ev.StartDriver(attempt, where):
                assert attempt in self.attempts_written, "no start before the attempt is recorded (HA-7)"
                assert attempt == max(self.attempts_written), "only the newest attempt starts"
                others = [d.attempt for d in self.drivers.values() if d.alive and d.accepted and d.attempt != attempt]
                assert not others, f"attempt {attempt} starts while {others} live (P1)"
                assert self.stored_result is None, "nothing starts after the result"
                assert not self.stopped or attempt == self.machine.state.attempt, "nothing follows a stop (END-5)"
                known = self.drivers.get(attempt)
                assert known is None or known.place == where, "one attempt starts in one place"
            case ev.RecordAttempt(attempt):
                assert attempt > self.stored_attempt, "attempt numbers only grow (HA-7)"
            case ev.RecordResult(result):
                assert self.stored_result in (None, result), "a result never changes (P4)"

    # --- what the outside does ----------------------------------------------------------------------------------------

    def take(self, kind: type[ev.Effect]) -> ev.Effect | None:
        """Remove and return the oldest effect of this kind that nobody has answered."""
        for effect in self.pending:
            if isinstance(effect, kind):
                self.pending.remove(effect)
                return effect
        return None

    def grant(self, number: int = 1, life: int = 1) -> None:
        assert self.take(ev.RequestPlace) is not None
        self.tell(ev.PlaceGranted(place(number, life)))

    def write_attempt(self, *, known: bool = True, durable: bool = True) -> None:
        effect = self.take(ev.RecordAttempt)
        assert isinstance(effect, ev.RecordAttempt)
        if durable:
            self.stored_attempt = effect.attempt
            self.attempts_written.append(effect.attempt)
        self.tell(ev.AttemptRecorded() if known else ev.AttemptUnknown())

    def write_result(self) -> None:
        effect = self.take(ev.RecordResult)
        assert isinstance(effect, ev.RecordResult)
        self.stored_result = effect.result
        self.tell(ev.ResultRecorded())

    def stop(self) -> None:
        """The end of a suspend or drain is written."""
        self.stopped = True
        self.tell(ev.StopRecorded())

    def start(self) -> TrueDriver:
        """The order to start arrives and the driver comes up."""
        effect = self.take(ev.StartDriver)
        assert isinstance(effect, ev.StartDriver)
        return self.drivers.setdefault(effect.attempt, TrueDriver(effect.attempt, effect.place))

    def refuses_start(self) -> bool:
        """True if the next order to start arrives where an order to stop this attempt came first. It is refused."""
        order = next(each for each in self.pending if isinstance(each, ev.StartDriver))
        if order.attempt not in self.refused:
            return False
        self.take(ev.StartDriver)
        self.tell(ev.StartRefused(order.attempt, "the attempt is over"))
        return True

    def register(self, driver: TrueDriver) -> bool:
        """Its JobMaster registers; returns whether it was let in."""
        self.tell(ev.JobMasterHeard(driver.attempt))
        if self.machine.state.refusal(driver.attempt):
            newest = driver.attempt == self.machine.state.attempt
            assert not newest or self.machine.state.phase is not Phase.WITHOUT_GRAPH, "its driver is let in (SAFE-1)"
            driver.alive = False  # it ends itself
            return False
        others = [d.attempt for d in self.drivers.values() if d is not driver and d.alive and d.accepted]
        assert not others, f"attempt {driver.attempt} was let in while {others} live (P1)"
        driver.accepted = True
        driver.heard_at = self.now
        self.tell(ev.JobMasterRegistered(driver.attempt, driver.place.task_manager, 42))
        return True

    def report_completely(self, where: ev.DriverPlace) -> None:
        """A task manager says all that it holds to a JobManager that it knows to lead."""
        attempt = self.machine.state.attempt
        driver = self.drivers.get(attempt)
        if driver is None or not driver.alive or driver.place.task_manager != where.task_manager:
            self.tell(ev.DriverNotAtHome(attempt, where, continues=True))
        else:
            self.tell(ev.DriverListed(attempt, where, 42))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tell(ev.Tick())

    def to_running(self, number: int = 1) -> TrueDriver:
        """The straight way from a request for a place to RUNNING."""
        self.grant(number)
        self.write_attempt()
        driver = self.start()
        self.tell(ev.DriverListed(driver.attempt, driver.place, 42))
        assert self.register(driver)
        return driver
