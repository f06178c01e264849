"""Frozen values that the Spark driver's runtime and the JobMaster in the same process exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.ids import JobId
from emberkeep.jobs.progress.records import ProgressRecord, SourceProgress
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.executors.allocation import DynamicAllocation
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.openlineage import LineageParent


@dataclass(frozen=True)
class JobFiles:
    """Local paths of the job's own files on this node, by the names that the job uses for them.

    ``files``: plain files and the directories of unpacked archives. ``py_files``: modules, and packages in zip files or
    directories. Every node has its own copies. URLs that Spark fetches itself stay in Spark's configuration.
    ``import_folders``: folders with modules beside the script, from which workers import where the folders exist.
    """

    py_files: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()
    import_folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverSettings:
    """Settings of a job's driver.

    - ``host``: where other processes reach the driver.
    - ``bind_host``: the address that the driver binds; empty: ``host``.
    - ``spark_conf``: settings from ``--conf`` and the other spark-submit options.
    - ``driver_memory_mb``: heap in MiB, unless ``spark.driver.memory`` is set in code or by ``--conf``.
    - ``scratch_dir``: directory that only this attempt uses.
    - ``checkpoint_root``: URI or path of the directory for queries that set no checkpoint location.
    - ``secret``: secret of Spark's authentication; None turns authentication off.
    - ``encrypts``: the application's processes encrypt what they exchange and spill, unless the user's settings differ.
      Without a ``secret`` they cannot.
    - ``tls``: the driver's certificate and its key, for calls of functions on executors; None: these are not encrypted.
    - ``class_archive``: see ``class_archive.py``.
    - ``committed``: newest batch that earlier attempts committed, by checkpoint location.
    - ``gateway_job``: job whose checkpoints go through the node's state gateway; None if Spark reaches them directly.
    - ``savepoint``: location of the savepoint that the job starts from; "" for none.
    - ``asked_before``: procedure that an earlier attempt was asked to run; this attempt continues it.
    - ``function_seconds``: time limit of one call of a user function.
    - ``step_seconds``: time limit of planned batches, and of the copy of a savepoint.
    - ``lineage``: parent of the runs that OpenLineage's listener reports; None: the listener is not turned on.
    - ``event_log``: existing directory for the event log; None: Spark writes none, unless the user's settings say so.
    - ``ui_key``: key to the Spark UI, see ``jvm.spark_ui``; None leaves the UI open to all users of the machine.
    - ``resources_file``: file that lists the driver's custom resources; "" if it has none from its task manager.
    """

    host: str
    spark_conf: Mapping[str, str]
    scratch_dir: Path
    checkpoint_root: str
    secret: str | None
    java: JavaRuntime
    app_name: str
    driver_memory_mb: int
    job_files: JobFiles = field(default_factory=JobFiles)
    encrypts: bool = True
    tls: TlsFiles | None = None
    class_archive: Path | None = None
    committed: Mapping[str, int] = field(default_factory=dict)
    gateway_job: JobId | None = None
    job_id: JobId | None = None
    savepoint: str = ""
    asked_before: Procedure | None = None
    function_seconds: float = 600.0
    step_seconds: float = 3600.0
    lineage: LineageParent | None = None
    event_log: Path | None = None
    ui_key: bytes | None = None
    bind_host: str = ""
    resources_file: str = ""


@dataclass(frozen=True)
class SparkApplication:
    """A running SparkContext, and the settings that its executors must start with.

    ``executor_instances``: number that the configuration asks for (``spark.executor.instances``, else
    ``spark.cores.max`` divided by the cores per executor); None if it asks for none. ``executor_cores_set`` and
    ``executor_heap_set``: true if the value comes from the configuration, false if it is Spark's default.
    ``executor_overhead_mb``: memory of an executor beyond its heap (native memory, Python workers, off-heap), by
    Spark's rule. ``python``: interpreter of the Python workers, as the application names it. ``decommissions``: true if
    an executor that receives SIGPWR hands over its blocks and ends. ``dynamic``: None if the number of executors is
    fixed. ``executor_resources``: number of addresses of each custom resource that an executor needs.
    """

    app_id: str
    driver_url: str
    executor_cores: int
    executor_heap_mb: int
    executor_overhead_mb: int
    executor_java_options: tuple[str, ...]
    extra_class_path: str
    executor_env: Mapping[str, str]
    auth_secret: str | None
    python: str = ""
    user_class_path_first: bool = False
    executor_instances: int | None = None
    executor_cores_set: bool = False
    executor_heap_set: bool = False
    decommissions: bool = False
    dynamic: DynamicAllocation | None = None
    executor_resources: Mapping[str, int] = field(default_factory=dict)


class ApplicationListener(Protocol):
    """Callbacks about SparkContexts, called synchronously on the script's thread: they must return quickly."""

    def application_started(self, application: SparkApplication) -> None: ...

    def application_stopping(self, app_id: str) -> None:
        """React to a SparkContext that begins to stop: its executors end from now on, normally or not."""

    def application_stopped(self, app_id: str) -> None: ...


@dataclass(frozen=True)
class ObservedQuery:
    """Progress of one streaming query. Rates are rows per second; ``batch_id`` is -1 before the first batch.

    ``committed_batch``: newest batch that is known to be in the checkpoint's commit log; -1 before the first commit. It
    differs from ``batch_id``: an idle query reports its next batch, which has not begun. Times are Unix milliseconds.
    """

    id: str
    run_id: str
    name: str | None
    batch_id: int
    num_input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    state_rows: int
    watermark: str | None
    status: str
    checkpoint_location: str | None
    is_active: bool = True
    committed_batch: int = -1
    triggered_ms: int = 0  # when the committed batch began
    committed_ms: int = 0  # when this process learned of the commit
    state_bytes: int = 0
    backlog_rows: int | None = None
    late_rows: int = 0
    state_commit_ms: int = 0
    sources: tuple[SourceProgress, ...] = ()  # of the newest report, without offsets
    reports: tuple[ProgressRecord, ...] = ()  # new ones, oldest first


@dataclass(frozen=True)
class FirstBatch:
    """The start of the first streaming query, and its first micro-batch: Unix milliseconds, or None before that."""

    query_ms: int | None = None
    planned_ms: int | None = None
    committed_ms: int | None = None


@dataclass(frozen=True)
class JvmExit:
    """The end of a JVM that Emberkeep did not request: by ``signal`` or with ``exit_code``."""

    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        return (
            f"killed by signal {self.signal}" if self.signal is not None else f"ended with exit code {self.exit_code}"
        )


@dataclass(frozen=True)
class StartedQuery:
    """Checkpoint location of a streaming query, decided when the query started."""

    location: str | None
    by_default: bool = field(default=False)
