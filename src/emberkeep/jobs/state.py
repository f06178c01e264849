"""The state of one job, and queries on it. The state machine that changes it is in ``machine``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from emberkeep.base.ids import InstanceId
from emberkeep.jobs import events as ev
from emberkeep.jobs.driver import Driver, DriverEnd
from emberkeep.jobs.events import Effect
from emberkeep.jobs.history import JobHistory
from emberkeep.jobs.model import AttemptOutcome, DriverHome, JobGraph, JobResult, JobStatus
from emberkeep.jobs.policy import JobPolicy
from emberkeep.jobs.restart import RestartStrategy
from emberkeep.jobs.start_failures import StartFailures
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.trace_recorder import TraceRecorder
from emberkeep.jobs.transitions import Phase

STEPS_REMEMBERED = 50


@dataclass(frozen=True)
class Verdict:
    """The job's decided end. ``keeps_data``: see JobResult."""

    status: JobStatus
    exit_code: int
    root_cause: str
    keeps_data: bool = False


STOPPED = Verdict(JobStatus.FINISHED, 0, "")


@dataclass(eq=False, kw_only=True)
class JobState:
    """The state of one job. Only the job's state machine and its parts change it.

    ``attempt``: the newest attempt number in the store; 0 for a job that was never started. ``home``: where that
    attempt's driver was ordered to start. ``stopped``: the job was suspended or drained, and no further attempt
    follows. ``over``: that attempt was lost with its cluster, so its driver is not awaited.
    """

    graph: JobGraph
    policy: JobPolicy
    strategy: RestartStrategy
    attempt: int = 0
    home: DriverHome | None = None
    stopped: bool = False
    over: bool = False
    status: JobStatus = JobStatus.CREATED
    phase: Phase = Phase.NEW
    driver: Driver | None = None
    history: JobHistory = field(default_factory=JobHistory)
    verdict: Verdict | None = None
    result: JobResult | None = None
    starts: StartFailures = field(init=False)
    place: ev.DriverPlace | None = None  # granted; its driver is not started yet
    only_node: bool = False  # the newest place was on the only node that can take the driver
    explain_at: float | None = None
    waited_for_blocked: bool = False  # at the last explanation, a closed node might have provided a place
    restart_at: float | None = None
    script_until: float | None = None  # when the script of a stopped job must have ended
    looked_at: float = 0.0  # time of the newest event, and its ``hears_since``
    hears_since: float | None = None
    recorded: int = field(init=False)  # newest number in the store
    writing: int = field(init=False)  # number of the current or last write
    seen: int = 0  # newest number that any event has named
    listens_until: float = float("-inf")  # in ``Moment.at`` seconds
    without_graph: str = ""  # why its graph cannot be read
    end_to_judge: AttemptOutcome | None = None  # end of the driver, judged once the graph can be read
    next_trace: TraceRecorder | None = None  # of the attempt that is being prepared
    forget_at: float | None = None
    forgotten: bool = False
    effects: list[Effect] = field(default_factory=list)  # of the event that is being handled
    steps: deque[str] = field(default_factory=lambda: deque(maxlen=STEPS_REMEMBERED))  # for error messages

    def __post_init__(self) -> None:
        self.starts = StartFailures(self.policy.start_attempts)
        self.recorded = self.writing = self.attempt

    def deadline(self) -> float | None:
        """Return when the next Tick is due (monotonic seconds), or None if only another event can change the job."""
        if self.phase is Phase.PLACING:
            return self.explain_at
        if self.phase is Phase.BACKING_OFF:
            return self.restart_at
        if self.phase is Phase.ENDED:
            return self.forget_at
        driver = self.driver
        if driver is None or driver.is_gone or self.phase not in (Phase.STARTING, Phase.RUNNING, Phase.ENDING):
            return None
        silence_from = self.silence_from()
        times = (
            driver.order_due_at(),
            driver.silent_at(self.policy, silence_from),
            driver.gone_at(self.policy, silence_from),
            self.script_until if driver.stop_at is None else None,
            # No event announces that contact with the peers is back, so poll.
            self.looked_at + self.policy.repeat if silence_from is None else None,
        )
        return min((time for time in times if time is not None), default=None)

    def silence_from(self) -> float | None:
        """Return the time from which a driver's silence counts, or None while this leader may be cut off itself.

        Such a leader must not restart healthy jobs. A canceled job is not restarted, so its driver's silence is
        always evidence.
        """
        return 0.0 if self.verdict_is(JobStatus.CANCELED) else self.hears_since

    def refusal(self, attempt: int) -> str:
        """Return why a JobMaster of ``attempt`` must exit; "" if it may continue."""
        if attempt != self.attempt:
            return f"attempt {attempt} of job {self.graph.job_id} is not the current attempt, which is {self.attempt}"
        driver = self.driver
        if driver is None or driver.is_gone or self.forgotten:
            return f"attempt {attempt} of job {self.graph.job_id} is over; the job is {self.status.value}"
        if driver.end is DriverEnd.CONDEMNED:
            return f"attempt {attempt} of job {self.graph.job_id} was abandoned; the job is {self.status.value}"
        if self.status is JobStatus.CANCELLING and not driver.reachable:
            return f"job {self.graph.job_id} is cancelled, and its task manager cannot be reached to end the driver"
        if self.stopped and driver.stop_at is not None and not driver.reachable:
            return f"job {self.graph.job_id} was stopped and its task manager cannot be reached to end the script"
        return ""

    def stands_on(self) -> InstanceId | None:
        """Return the task manager instance that has the driver, or the place granted for it; None if it has neither."""
        if self.place is not None:
            return self.place.instance
        driver = self.driver
        return driver.place.instance if driver is not None and driver.place is not None else None

    def driver_home(self) -> DriverHome | None:
        """Return where the driver runs or may start: its current or granted place; None if it is gone."""
        if self.place is not None:
            return self.place.home
        return None if self.driver is None or self.driver.is_gone else self.driver.stands_at

    def knows_jobmaster(self) -> bool:
        """True if the JobMaster is registered; otherwise it must register (again)."""
        return self.driver is not None and self.driver.is_registered

    @property
    def last_attempt_over(self) -> bool:
        """True if the last attempt counts as over, although its driver may not be proven gone."""
        return self.phase in (Phase.RECORDING_RESULT, Phase.ENDED) or self.status is JobStatus.FAILING

    def lacks_driver(self) -> str:
        """Return what the job waits for if it has no driver and none is being started; else ""."""
        if self.phase not in (Phase.PLACING, Phase.BACKING_OFF):
            return ""
        return self.waiting() or self.status.value

    def waiting(self) -> str:
        """Return a text that names what the job waits for, other than a driver place; "" if it does not wait."""
        driver = self.driver
        if self.phase is Phase.WITHOUT_GRAPH:
            return f"its job graph: {self.without_graph}"
        if self.phase is Phase.BACKING_OFF:
            if self.status is JobStatus.CREATED:
                return "reports of task managers about its driver"
            return "the pause before its restart"
        if self.phase is Phase.RECORDING_ATTEMPT:
            return "the job store to record the next attempt"
        if self.phase is Phase.ADOPTING:
            return f"the job store to record attempt {self.attempt}: the store was restored from an older copy"
        if self.phase is Phase.RECORDING_RESULT:
            return "the job store to record its result"
        if driver is not None and self.stopped and self.phase in (Phase.STARTING, Phase.RUNNING):
            return "the end of its script: the job was stopped and is not restarted"
        if driver is not None and self.silence_from() is None and self._is_overdue(driver):
            return "contact with its driver: most task managers are silent, so this JobManager itself may be cut off"
        if driver is None or self.phase not in (Phase.STARTING, Phase.ENDING):
            return ""
        where = (
            f"on task manager {driver.place.task_manager}"
            if driver.place
            else ("on a task manager that is not known yet")
        )
        what = "the end of" if self.phase is Phase.ENDING else "contact with"
        return f"{what} the driver of attempt {driver.attempt} {where}"

    def _is_overdue(self, driver: Driver) -> bool:
        return self.phase is Phase.RUNNING and self.looked_at >= driver.heard_at + self.policy.heartbeat_timeout

    @property
    def known_attempt(self) -> int:
        """The newest attempt, without one that the next leader may not find in the store."""
        if self.result is not None:
            return self.result.attempt
        return self.recorded if self.phase is Phase.RECORDING_ATTEMPT else self.attempt

    def is_news(self, attempt: int) -> bool:
        """True if another leader began this attempt and the job store does not have it."""
        unused = self.phase is Phase.RECORDING_ATTEMPT  # this leader has not used the number yet
        return attempt > self.attempt or (unused and attempt == self.attempt)

    @property
    def returns(self) -> bool:
        """True if another attempt follows. Nothing follows a verdict, whatever the status still is."""
        return self.status is JobStatus.RESTARTING and self.verdict is None

    def verdict_is(self, status: JobStatus) -> bool:
        return self.verdict is not None and self.verdict.status is status

    def live(self) -> Driver:
        assert self.driver is not None  # noqa: S101 - _is_late has dropped facts about no driver
        return self.driver

    def enter(self, status: JobStatus, now: Moment) -> None:
        self.status = status
        self.history.status_entered(status, now.ms)
