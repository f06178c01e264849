"""What a JobMaster reports of its job: queries, executors and their number."""

from __future__ import annotations

from emberkeep.base.ids import AllocationId, ExecutorId, TaskManagerId
from emberkeep.blocklist.model import Blocklist, Report
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.outstanding import Outstanding, outstanding
from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.jobs.progress.totals import QueryTotals
from emberkeep.jobs.progress.trend import Trend
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.lifecycle.model import ProcedureProgress
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.slots.model import ProcessStart, Reclaim, SlotRequirement


class QueryProgress(Message, frozen=True, kw_only=True):
    """The newest progress of one streaming query."""

    id: str
    run_id: str
    name: str
    batch_id: int
    timestamp: str  # ISO 8601, as Spark gives it
    num_input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    state_rows: int
    watermark: str  # "" if the query has none
    status: str
    checkpoint_location: str
    state_bytes: int = 0  # memory that the state stores of its operators use
    backlog_rows: int | None = None  # that its sources have and that it has not read; None if they do not say
    late_rows: int = 0  # that the newest batch dropped, because they came after the watermark
    state_commit_ms: int = 0  # of the newest batch, added over its tasks
    totals: QueryTotals | None = None  # of the attempt; None if they are not counted
    sources: tuple[SourceProgress, ...] = ()  # of the newest report, without offsets

    @property
    def is_waiting(self) -> bool:
        """True while the query waits for data or for its next trigger, by Spark's text."""
        return self.status.startswith("Waiting")

    @property
    def outstanding(self) -> Outstanding:
        """What its sources have and it has not read, as they count it."""
        return outstanding(self.sources, self.backlog_rows)


class Departure(Message, frozen=True, kw_only=True):
    """Progress of an executor that is leaving.

    ``begun`` False: it waits for another executor that can take over its blocks. ``shuffle_blocks`` and
    ``cached_blocks``: how many it still holds, according to Spark's driver; -1: not known. ``at_least``: there are more
    map outputs than were counted.
    """

    begun: bool
    shuffle_blocks: int = -1
    cached_blocks: int = -1
    at_least: bool = False


class ExecutorView(Message, frozen=True, kw_only=True):
    """One slot of the job as its JobMaster sees it."""

    executor_id: ExecutorId
    allocation_id: AllocationId
    task_manager: TaskManagerId
    host: str
    state: ProcessState
    registered: bool  # with Spark's driver
    cores: int
    heap_mb: int
    pid: int = 0
    away: bool = False  # its task manager is silent, but Spark reports the executor as alive
    departure: Departure | None = None  # it is leaving, and does not count towards the executors wanted
    # Its place is blocked, or its disk is full: it does not count either, but stays until it has no work left.
    outgoing: bool = False
    cordoned: bool = False  # it gets no new tasks, because its replacement runs
    start: ProcessStart | None = None  # how its task manager got its process; None if unknown
    why_cold: str = ""
    dismissed: bool = False  # Spark needs fewer executors: it hands over its blocks and ends, and counts no more
    lacks_space: bool = False  # tasks have failed there lately because its disk is full


class Scaling(Message, frozen=True, kw_only=True):
    """``wanted`` executors are wanted since ``changed_ms`` (Unix time). ``maximum``: None for no limit.

    ``autoscaled``: by autoscaling, for ``reason``; otherwise by Spark's dynamic allocation.
    """

    wanted: int
    minimum: int
    maximum: int | None
    changed_ms: int
    autoscaled: bool = False
    reason: str = ""


class JobMasterStatus(Message, frozen=True, kw_only=True):
    """Everything that a JobMaster reports about its attempt. ``waiting``: what is missing, in words, if anything."""

    sequence: int
    requirements: tuple[SlotRequirement, ...]
    executors: tuple[ExecutorView, ...]
    queries: tuple[QueryProgress, ...] = ()
    active_stages: int = 0
    active_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    app_id: str = ""
    waiting: str = ""
    exceptions: tuple[ExceptionEntry, ...] = ()  # the newest ones of this attempt, bounded
    blocklist_revision: int = -1  # of the list that the JobMaster follows; -1: it has received none
    blocklist: Blocklist | None = None  # that list, sent if the JobManager cannot read its own
    blocklist_epoch: int = 0  # of the leader that sent that list
    block_reports: tuple[Report, ...] = ()  # requested entries that the list has not answered yet, bounded
    checkpoints: tuple[QueryCheckpoint, ...] = ()  # newest commit of each streaming query of this attempt, bounded
    procedure: ProcedureProgress | None = None  # of the newest request, until another one comes
    functions: tuple[str, ...] = ()  # names of user functions that may have state, bounded
    trace: TraceReport | None = None  # of the attempt's start, with what replies have added to it
    work: AttemptWork | None = None  # from the attempt's start on; None from release 0.1.0, which counts active stages
    trend: Trend | None = None  # of the last minutes; None while there is none
    scaling: Scaling | None = None  # None if the number of executors is fixed
    least_slots: int = 0  # that the attempt keeps when others are entitled to its slots; 0: it can give none back
    reclaim: Reclaim | None = None  # what it gives back now
    given_back: int = 0  # executors that it wants, and does without for that reason
    flows: tuple[FlowProgress, ...] = ()  # of a declarative pipeline, bounded
    course: Course | None = None  # of the job over all its attempts; None before the first executor or task

    @property
    def executors_wanted(self) -> int:
        """Number of executors that the job wants. With dynamic allocation it may hold more for a while."""
        if self.scaling is not None:
            return self.scaling.wanted
        return sum(requirement.count for requirement in self.requirements) + self.given_back
