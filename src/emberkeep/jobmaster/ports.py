"""What a JobMaster needs from the Spark driver beside it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import ExecutorId
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import Artefact
from emberkeep.protocol.messages import QueryProgress
from emberkeep.slots.model import SlotRequirement


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """A SparkContext that is up: what its executors are started with, and how many are wanted."""

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
    python: str = ""  # of the Python workers
    jars_first: bool = False
    decommissions: bool = False  # an executor that is told to (SIGPWR) hands over its blocks and ends by itself


class BlocksLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor does, and keeps that others may need; -1: not known. ``at_least``: there are more map outputs
    than were looked at."""

    shuffle: int = -1  # map outputs
    cached: int = -1  # RDD blocks
    at_least: bool = False
    tasks: int = -1  # that run

    @property
    def nothing(self) -> bool:
        """Whether nothing runs there, and nothing is kept there."""
        return (self.shuffle, self.cached, self.tasks) == (0, 0, 0) and not self.at_least


class SparkView(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark says at one moment."""

    executors: frozenset[ExecutorId]  # registered
    silent: frozenset[ExecutorId] = frozenset()  # those of them that were asked about and not heard for too long
    queries: tuple[QueryProgress, ...]
    active_stages: int
    active_tasks: int
    completed_tasks: int
    failed_tasks: int
    commits: tuple[QueryCheckpoint, ...] = ()  # newest committed micro-batches, also of queries that have just ended
    takers: frozenset[ExecutorId] = frozenset()  # executors that can take over blocks; told while some leave
    blocks: dict[ExecutorId, BlocksLeft] = {}  # of those that leave, and of cordoned ones
    cordoned: frozenset[ExecutorId] = frozenset()  # those that take no new task
    excluded: frozenset[ExecutorId] = frozenset()  # those that Spark excludes, as tasks have failed there repeatedly
    functions: tuple[str, ...] = ()  # names of user functions that may have state, bounded


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at Spark is to tell, and to bring about.

    ``doubted``: executors of which it is to say whether Spark still hears them. ``leaving``: those of which it is to
    say what they keep, and with them which executors can take that over. ``cordoned``: exactly those that are to take
    no new task.
    """

    doubted: frozenset[ExecutorId] = frozenset()
    leaving: frozenset[ExecutorId] = frozenset()
    cordoned: frozenset[ExecutorId] = frozenset()


class SparkDriver(Protocol):
    """The driver's JVM. Calls may take a while (they cross into the JVM) and run in a thread of the adapter."""

    async def view(self, asked: Asked) -> SparkView | None:
        """Cordon, then look; None while no SparkContext is up."""

    async def remove_executor(self, executor_id: ExecutorId, reason: str) -> None:
        """Tell Spark that an executor is lost; unknown ids are ignored."""

    async def fail(self, message: str) -> None:
        """The attempt cannot go on (slots or executors are not to be had): end the script with this as root cause."""

    async def abandon(self, message: str) -> None:
        """The attempt has been superseded or the job has ended: end this process at once, without any further write."""
