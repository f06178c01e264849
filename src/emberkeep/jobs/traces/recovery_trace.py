"""The recovery trace of an attempt as plain data: when the attempt reached each milestone, and why it was started.

A trace begins when the job is submitted, or when the JobManager learns of the end of the previous attempt; if a driver
fell silent, with its last message. It ends with the first committed micro-batch, or for a batch job with its first
completed stage. ``trace_recorder`` records it.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.model import FailureKind
from emberkeep.slots.model import ProcessStart


class Milestone(enum.Enum):
    """A moment in the start of an attempt, in the usual order.

    The JobManager sees those up to REGISTERED. The driver reports the others.
    """

    SUBMITTED = "submitted"  # the JobManager received the job; only in the trace of a first start
    LAST_CONTACT = "last-contact"  # the previous driver sent its last message; only if it fell silent
    DETECTED = "detected"  # the JobManager learned of the end of the previous attempt
    DECIDED = "decided"  # the restart strategy has answered, or a move needs no answer
    GONE = "gone"  # the previous driver is proven to have ended
    PLACE_REQUESTED = "place-requested"  # the delay of the restart is over
    PLACED = "placed"  # a task manager has a place for the driver
    ORDERED = "ordered"  # the attempt's number is durable, and the driver is ordered to start
    PROCESS_STARTED = "process-started"  # its task manager has a process for the driver
    REGISTERED = "registered"  # the JobMaster has registered, and the script begins
    JVM_STARTED = "jvm-started"  # by the script; missing if the driver took one that ran already
    CONTEXT_BEGUN = "context-begun"  # the JVM runs, and the script's SparkContext is being made
    CONTEXT_UP = "context-up"
    EXECUTOR_ORDERED = "executor-ordered"  # the job has its first slot, and the executor there is ordered to start
    EXECUTOR_STARTED = "executor-started"  # a task manager has the first executor's process
    EXECUTOR_REGISTERED = "executor-registered"  # the first one, with Spark
    EXECUTORS_REGISTERED = "executors-registered"  # as many as the job wants
    STAGE_COMPLETED = "stage-completed"  # the application's first stage
    QUERY_STARTED = "query-started"  # the first streaming query
    QUERY_PLANNED = "query-planned"  # the first micro-batch is planned, and its tasks start
    BATCH_COMMITTED = "batch-committed"  # the first micro-batch


BEGINNINGS = frozenset({Milestone.SUBMITTED, Milestone.LAST_CONTACT, Milestone.DETECTED})  # one of them is the first


class RecoveryCause(enum.Enum):
    """The reason why an attempt was started: the submission, or the end of the previous attempt."""

    SUBMISSION = "submission"
    LOST = "lost"
    SCRIPT = "script"
    SETUP = "setup"
    RESOURCES = "resources"
    MOVED = "moved"

    @classmethod
    def of(cls, kind: FailureKind | None) -> RecoveryCause | None:
        return None if kind is None else cls(kind.value)


class TraceReport(Compatible, frozen=True, kw_only=True):
    """A trace as JobMaster and JobManager exchange it.

    ``age``: seconds since the driver's zero when this was sent; 0 in what a JobManager sends. ``milestones``: seconds
    after the driver's zero, negative for earlier ones, by the names of the milestones. ``cause`` and ``start`` are
    names, too: names that a receiver does not know are ignored. ``delay``: seconds added by the restart strategy.
    """

    age: float = 0.0
    milestones: dict[str, float] = msgspec.field(default_factory=dict)
    cause: str = ""
    delay: float = 0.0
    start: str = ""
    why_cold: str = ""


class Reached(msgspec.Struct, frozen=True):
    """A milestone, and when it was reached: ``seconds`` after the trace's first known milestone."""

    milestone: Milestone
    seconds: float


class RecoveryTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an attempt's start.

    ``began_ms``: time of the first known milestone, on the JobManager's clock. ``milestones``: in order of time. What
    only an earlier leader saw may be missing. ``delay``: seconds added by the restart strategy.
    """

    attempt: int
    began_ms: int
    milestones: tuple[Reached, ...]
    cause: RecoveryCause | None = None
    delay: float = 0.0
    start: ProcessStart | None = None
    why_cold: str = ""  # why the driver was not started from a standby process, "" if unknown

    @property
    def is_complete_from_the_beginning(self) -> bool:
        """True if the first milestone is the one with which traces begin."""
        return bool(self.milestones) and self.milestones[0].milestone in BEGINNINGS
