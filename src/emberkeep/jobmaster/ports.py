"""Ports of a JobMaster to the Spark driver in its process."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.base.ids import ExecutorId
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import Artefact
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.records import ProgressRecord, ReportKey
from emberkeep.jobs.progress.work import NOTHING_DONE, AttemptWork
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.protocol.messages.job_master_reports import QueryProgress
from emberkeep.slots.model import SlotRequirement


class DynamicAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """The number of executors changes within these bounds. ``maximum``: None for no limit.

    ``idle_timeout``: seconds after which an executor that is not wanted any more is cancelled if it has not registered.
    ``autoscale``: the load of streaming queries decides; None if Spark decides.
    """

    minimum: int
    maximum: int | None
    idle_timeout: float
    autoscale: AutoscaleSettings | None = None


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """A running SparkContext: how to start its executors, and how many it requires.

    ``dynamic``: None if it always requires the same number; otherwise ``requirement`` holds the initial number.
    """

    app_id: str
    driver_url: str
    requirement: SlotRequirement
    heap_mb: int
    java_options: tuple[str, ...]
    extra_class_path: str
    environ: dict[str, str]
    auth_secret: str
    python_path: tuple[str, ...]
    artefacts: tuple[Artefact, ...] = ()
    python: str = ""  # interpreter of the Python workers
    jars_first: bool = False
    python_path_owner: int | None = None  # user who owns the script
    secrets: dict[str, str] = msgspec.field(default_factory=dict)  # of the job graph, encrypted
    namespace_claim: str = ""  # proves the job's namespace to task managers
    decommissions: bool = False  # on SIGPWR an executor hands over its blocks and ends by itself
    dynamic: DynamicAllocation | None = None


class BlocksLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor still runs and stores that others may need; -1 if unknown.

    ``at_least``: there are more map outputs than were counted.
    """

    shuffle: int = -1  # map outputs
    cached: int = -1  # RDD blocks
    at_least: bool = False
    tasks: int = -1  # running now

    @property
    def nothing(self) -> bool:
        """True if the executor certainly runs no task and stores no block."""
        return (self.shuffle, self.cached, self.tasks) == (0, 0, 0) and not self.at_least


class FirstTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When the things that an application needs first became available, in Unix milliseconds by this machine's clock.

    None or empty: not yet, or not asked for.
    """

    jvm_ms: int | None = None  # the JVM was started
    context_ms: int | None = None  # the JVM began to make the SparkContext
    executors_ms: tuple[int, ...] = ()  # when each executor that is registered now has registered
    stage_ms: int | None = None  # the first stage was completed
    query_ms: int | None = None  # the first streaming query was started
    planned_ms: int | None = None  # its first micro-batch was planned
    committed_ms: int | None = None  # that batch was committed


NO_TIMES = FirstTimes()


class SparkView(msgspec.Struct, frozen=True, kw_only=True):
    """Spark's state at one moment."""

    executors: frozenset[ExecutorId]  # registered
    silent: frozenset[ExecutorId] = frozenset()  # doubted ones that have sent no heartbeat for too long
    queries: tuple[QueryProgress, ...]
    work: AttemptWork = NOTHING_DONE
    commits: tuple[QueryCheckpoint, ...] = ()  # newest committed micro-batches, also of queries that just ended
    takers: frozenset[ExecutorId] = frozenset()  # executors that can take over blocks; known while some leave
    blocks: dict[ExecutorId, BlocksLeft] = {}  # of leaving and cordoned executors
    cordoned: frozenset[ExecutorId] = frozenset()  # executors that take no new task
    excluded: frozenset[ExecutorId] = frozenset()  # excluded by Spark: tasks failed there repeatedly
    lacking_space: frozenset[ExecutorId] = frozenset()  # tasks have failed there since the last view: the disk is full
    functions: tuple[str, ...] = ()  # names of user functions that may have state, bounded
    times: FirstTimes = NO_TIMES
    reports: tuple[ProgressRecord, ...] = ()  # progress of streaming queries that is new
    flows: tuple[FlowProgress, ...] = ()  # of a declarative pipeline


class SparkQuestions(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of ``SparkDriver.view`` must report, and what it must change.

    - ``doubted``: report which of these executors have sent Spark no heartbeat for too long.
    - ``leaving``: report the blocks of these executors, and which executors can take them over.
    - ``cordoned``: exactly these executors must take no new task.
    - ``milestones``: report when these were reached.
    - ``reported``: the newest known progress report of each known run of a streaming query. Report what has come
      since.
    """

    doubted: frozenset[ExecutorId] = frozenset()
    leaving: frozenset[ExecutorId] = frozenset()
    cordoned: frozenset[ExecutorId] = frozenset()
    milestones: frozenset[Milestone] = frozenset()
    reported: dict[str, ReportKey] = msgspec.field(default_factory=dict)


class ExecutorDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What the dynamic allocation of one application wants at one moment, see ``ExecutorsDemanded``."""

    app_id: str
    count: int
    decommissioned: frozenset[ExecutorId] = frozenset()
    killed: frozenset[ExecutorId] = frozenset()
    others: int = 0


class SparkDriver(Protocol):
    """The driver's JVM. Calls can be slow, as they cross into the JVM; the adapter runs them in a thread."""

    async def view(self, asked: SparkQuestions) -> SparkView | None:
        """Cordon exactly ``asked.cordoned``, then return Spark's state; None while no SparkContext is up."""

    async def demand(self) -> ExecutorDemand | None:
        """Return what dynamic allocation wants; None while no SparkContext is up."""

    async def resize(self, count: int, *, decommissions: bool) -> None:
        """Make Spark want ``count`` executors, and dismiss those beyond, see ``Application.decommissions``.

        Raises RetryLater if Spark does not answer or no SparkContext is up.
        """

    async def remove_executor(self, executor_id: ExecutorId, reason: str) -> None:
        """Report to Spark that an executor is lost. Unknown ids are ignored."""

    async def fail(self, message: str) -> None:
        """Stop the script with ``message`` as root cause.

        The attempt cannot continue: slots or executors are unavailable.
        """

    async def abandon(self, message: str) -> None:
        """Exit this process at once, without any further write: the attempt was superseded, or the job has ended."""
