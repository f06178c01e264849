"""What passes between the Spark driver's runtime and the JobMaster beside it: plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.java import JavaRuntime


@dataclass(frozen=True)
class JobFiles:
    """The job's own files as they lie on this node, by the names that the job knows them by.

    ``files``: plain ones and the directories of unpacked archives. ``py_files``: modules, and packages in zip files or
    directories. Every node has its own; addresses that Spark fetches itself stay in its configuration.
    """

    py_files: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    jars: tuple[Path, ...] = ()


@dataclass(frozen=True)
class DriverSettings:
    """How the driver of a job is to be set up.

    ``host``: the node's address, to bind and to advertise. ``spark_conf``: from ``--conf`` and the other spark-submit
    options. ``driver_memory_mb``: heap, unless ``spark.driver.memory`` is set in code or by ``--conf``.
    ``scratch_dir``: private to this attempt. ``checkpoint_root``: URI or path below which queries without an own
    checkpoint location get one. ``secret``: of Spark's authentication; None turns it off. ``class_archive``: see
    ``class_archive.py``. ``committed``: the newest batch of earlier attempts, by checkpoint location. ``gateway_job``:
    the job whose checkpoints go through the node's state gateway, None where Spark reaches them by itself.
    ``savepoint``: location of the one that the job starts from, "" for none. ``asked_before``: what an
    earlier attempt was asked to do; this one carries it on. ``function_seconds``: that a user function may take for
    one call. ``step_seconds``: that planned batches, or the copy of a savepoint, may take.
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
    class_archive: Path | None = None
    committed: Mapping[str, int] = field(default_factory=dict)
    gateway_job: JobId | None = None
    job_id: JobId | None = None
    savepoint: str = ""
    asked_before: Procedure | None = None
    function_seconds: float = 600.0
    step_seconds: float = 3600.0


@dataclass(frozen=True)
class Application:
    """A SparkContext that is up, and what its executors must be started with.

    ``executor_instances`` is what the configuration asks for (``spark.executor.instances``, else ``spark.cores.max``
    divided by the cores of one), None where it asks for nothing. ``executor_cores_set`` and ``executor_heap_set``
    tell whether the number comes from the configuration or is Spark's default. ``executor_overhead_mb``: what an
    executor takes beyond its heap (native memory, Python workers, off-heap), by Spark's rule. ``python``: the
    interpreter of the Python workers, as the application names it. ``decommissions``: executors hand over their blocks
    and end when they get SIGPWR.
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


class ApplicationListener(Protocol):
    """Told of SparkContexts, synchronously on the script's thread: answers must be quick."""

    def application_started(self, application: Application) -> None: ...

    def application_stopping(self, app_id: str) -> None:
        """It begins to stop: executors end from now on, one way or another."""

    def application_stopped(self, app_id: str) -> None: ...


@dataclass(frozen=True)
class QueryProgress:
    """One streaming query. Rates are rows per second; ``batch_id`` is -1 before the first batch.

    ``committed_batch``: the newest batch that is known to be in the checkpoint's commit log, -1 before the first one
    (an idle query's report names the next batch, which has not begun). Times in Unix milliseconds.
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
    triggered_ms: int = 0  # when that batch began
    committed_ms: int = 0  # when it was known to be committed


@dataclass(frozen=True)
class SparkJobs:
    """What Spark's scheduler is busy with: the sums are over the active stages."""

    active_jobs: int = 0
    active_stages: int = 0
    total_tasks: int = 0
    completed_tasks: int = 0
    active_tasks: int = 0
    failed_tasks: int = 0


@dataclass(frozen=True)
class JvmExit:
    """How a JVM ended without having been asked to: by ``signal`` or with ``exit_code``."""

    exit_code: int | None
    signal: int | None

    def __str__(self) -> str:
        return (
            f"killed by signal {self.signal}" if self.signal is not None else f"ended with exit code {self.exit_code}"
        )


@dataclass(frozen=True)
class StartedQuery:
    """Where a streaming query keeps its checkpoint, as decided when it was started."""

    location: str | None
    by_default: bool = field(default=False)
