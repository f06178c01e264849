"""Job graphs, states, attempts and results as plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.inert_text import cut_short
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.progress.kept_work import KeptWork


class JobStatus(enum.Enum):
    """Flink's job states."""

    CREATED = "CREATED"  # accepted and durable; waits for a driver place
    INITIALIZING = "INITIALIZING"  # a driver was ordered to start, or is awaited after a recovery
    RUNNING = "RUNNING"  # the JobMaster in the driver has registered
    RESTARTING = "RESTARTING"  # an attempt was lost; the next one waits for its delay or a driver place
    FAILING = "FAILING"  # failed permanently; the driver is being stopped and the result written
    CANCELLING = "CANCELLING"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"

    @property
    def is_globally_terminal(self) -> bool:
        """True if the job has ended permanently, everywhere."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    @property
    def is_troubled(self) -> bool:
        """True if the newest attempt has failed, and no other one has begun."""
        return self in (JobStatus.RESTARTING, JobStatus.FAILING)


class ArtefactRole(enum.Enum):
    """The role of an uploaded file, by spark-submit's options."""

    SCRIPT = "script"
    PY_FILE = "py-file"
    FILE = "file"
    ARCHIVE = "archive"
    JAR = "jar"


# The option of spark-submit that names files of a role, and the Spark configuration key for them.
FILE_OPTIONS: Final = {
    ArtefactRole.PY_FILE: ("--py-files", "spark.submit.pyFiles"),
    ArtefactRole.FILE: ("--files", "spark.files"),
    ArtefactRole.ARCHIVE: ("--archives", "spark.archives"),
    ArtefactRole.JAR: ("--jars", "spark.jars"),
}


class Artefact(Compatible, frozen=True, kw_only=True):
    """A file of the job: its content's SHA-256 (64 hex digits), its size in bytes and the name that the job sees."""

    role: ArtefactRole
    name: str  # base name, no separators
    sha256: str
    size: int
    fragment: str = ""  # "#name" of --archives / --files: the name to unpack or link to


class EntryPointKind(enum.Enum):
    SCRIPT = "script"
    MODULE = "module"  # python -m


class EntryPoint(Compatible, frozen=True, kw_only=True):
    """The code that the driver runs: the SCRIPT artefact, or a module on its Python path."""

    kind: EntryPointKind
    name: str  # script: base name; module: dotted name
    source_path: str = ""  # absolute path on the client; used if that very file exists on the node


class JobResources(Compatible, frozen=True, kw_only=True):
    """Memory that the driver takes on its task manager (heap and overhead), and what executors request at first.

    The executor numbers are those known at submission; static configuration in the script may change them later.
    """

    driver_memory_mb: int  # heap
    driver_overhead_mb: int
    executors: int
    executor_cores: int
    executor_memory_mb: int  # heap
    executor_overhead_mb: int
    executor_resources: dict[str, int] = msgspec.field(default_factory=dict)  # of each executor, such as {"gpu": 1}
    driver_resources: dict[str, int] = msgspec.field(default_factory=dict)


class JobGraph(Compatible, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that is needed to start the job at any time on any node. Persisted (kind "job-graph", version 1)."""

    job_id: JobId
    name: str
    entry_point: EntryPoint
    arguments: tuple[str, ...]
    artefacts: tuple[Artefact, ...]
    spark_conf: dict[str, str]
    options: dict[str, str]  # Emberkeep options set for this job (restart-strategy.*, …)
    working_directory: str  # the client's; used if it exists on the node
    resources: JobResources
    python: str  # the client's Python, "3.11"
    submitted_ms: int
    idempotency_key: str
    savepoint: str = ""  # URI of the savepoint that the first attempt starts from
    owner: str = ""  # name of the identity that submitted it; "" for the cluster's own token
    namespace: str = ""  # identities with another namespace do not see the job
    secrets: dict[str, str] = msgspec.field(default_factory=dict)  # encrypted, by name, see ``job_secrets``


MOST_TEXT = 16_384  # characters of a message, and of a traceback, that are kept


def follows_load(spark_conf: Mapping[str, str]) -> bool:
    """Return whether the number of a job's executors follows its load: whether it asks for dynamic allocation."""
    return spark_conf.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"


class FailureKind(enum.Enum):
    """The reason why an attempt did not succeed. It decides whether the restart strategy is asked."""

    LOST = "lost"  # driver process killed, JVM died, node gone
    SCRIPT = "script"  # the script raised or exited with a code other than 0, or the job's settings cannot be used
    SETUP = "setup"  # the driver could not be started (artefacts, interpreter, Java, disk)
    RESOURCES = "resources"  # no slots in time, or executors that kept failing
    MOVED = "moved"  # no failure: the driver left its node between two micro-batches and restarts elsewhere at once


class AttemptOutcome(Compatible, frozen=True, kw_only=True, omit_defaults=True):
    """The end of one attempt. ``kind`` None means success; ``exit_code`` is what a shell would show.

    ``lasting``: True if the driver could not be started and would fail again: on that node until an operator repairs
    it or, with SCRIPT, on each node.
    """

    exit_code: int
    kind: FailureKind | None = None
    message: str = ""  # one line: the root cause
    traceback: str = ""
    lasting: bool = False

    def shortened(self) -> AttemptOutcome:
        """Return the outcome without the end of a long message, and without the beginning of a long traceback.

        An exception may quote megabytes, and the outcomes of many attempts are kept.
        """
        return msgspec.structs.replace(
            self, message=cut_short(self.message, MOST_TEXT), traceback=self.traceback[-MOST_TEXT:]
        )


class ExceptionEntry(Compatible, frozen=True, kw_only=True):
    """One entry of a job's exception history, which includes non-fatal ones such as a lost executor.

    ``executor``: the one that was lost; "" if the entry is about something else, or from an earlier release.
    """

    timestamp_ms: int
    attempt: int
    kind: str
    message: str
    traceback: str = ""
    task_manager: str = ""
    executor: str = ""


class DriverHome(Compatible, frozen=True, kw_only=True):
    """The place where an attempt's driver was ordered to start."""

    task_manager: TaskManagerId
    node_id: str  # the machine that the task manager runs on
    instance: InstanceId  # the task manager's instance at that time


class AttemptRecord(Compatible, frozen=True, kw_only=True):
    """One start of a job's driver, for the history shown to users."""

    attempt: int
    task_manager: TaskManagerId
    started_ms: int
    ended_ms: int | None = None
    outcome: AttemptOutcome | None = None


class JobResult(Compatible, frozen=True, kw_only=True):
    """The result of a job: written once, in one transaction that also removes its handle. Persisted (version 1)."""

    job_id: JobId
    name: str
    status: JobStatus  # globally terminal
    exit_code: int
    root_cause: str
    submitted_ms: int
    ended_ms: int
    attempts: tuple[AttemptRecord, ...]
    exceptions: tuple[ExceptionEntry, ...]
    idempotency_key: str
    savepoints: tuple[SavepointPointer, ...] = ()  # filled in by the store: they can still be restored from
    owner: str = ""
    namespace: str = ""
    savepoint: str = ""  # that the first attempt started from
    keeps_data: bool = False  # failed because its stored data is unusable; operators may need its files and checkpoints
    work: KeptWork | None = None  # as its last report said; None if the leader that ended it had none
    attempt: int = 0  # number of the newest attempt, begun or not; 0 also if an earlier release ended the job
