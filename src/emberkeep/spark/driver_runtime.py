"""Wiring of everything that runs in the driver process around the user's unmodified script."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from emberkeep.api.job import current_job
from emberkeep.api.registry import REGISTRY
from emberkeep.base.ids import JobId
from emberkeep.jobs.progress.records import ReportKey
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.lifecycle.ports import SavepointObjects
from emberkeep.local_state.gateway_paths import gateway_address
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.executors import blocks as executor_blocks
from emberkeep.spark.executors import scheduler_control
from emberkeep.spark.executors.allocation import DemandReader, ExecutorDemand
from emberkeep.spark.executors.blocks import ExecutorBlocks
from emberkeep.spark.executors.cordon import Cordon
from emberkeep.spark.executors.resizing import resize
from emberkeep.spark.executors.resource_profiles import refuse_executor_profiles
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.files.job_files import add_to_path
from emberkeep.spark.files.state_locations import DirectLocations, GatewayLocations, StateLocations
from emberkeep.spark.functions.encryption import link_encryption
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.hooks import FunctionHooks
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.functions.user_functions import DriverFunctions
from emberkeep.spark.functions.worker_port import WorkerPort
from emberkeep.spark.jvm.context_hook import ContextHook, TakeJvm
from emberkeep.spark.model import (
    ApplicationListener,
    DriverSettings,
    JobFiles,
    JvmExit,
    ObservedQuery,
    SparkApplication,
)
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.await_hook import AwaitGate, install_await_hook
from emberkeep.spark.queries.checkpoint_guard import guard_checkpoints
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.queries.committed_before import CommittedBefore
from emberkeep.spark.queries.first_times import FirstTimes
from emberkeep.spark.queries.progress import NOTHING_REPORTED
from emberkeep.spark.queries.script_queries import ScriptQueries
from emberkeep.spark.queries.session_queries import SessionQueries
from emberkeep.spark.queries.start_hook import QueryHook
from emberkeep.spark.queries.state_placement import StatePlacement, Surveyor
from emberkeep.spark.stopping.plan_gate import PlanGate, leave_refusals_out_of_logs
from emberkeep.spark.stopping.procedures import ENDINGS, QueryProcedures
from emberkeep.spark.stopping.query_starts import OrderedStarts
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.savepoint_storage import SavepointStorages
from emberkeep.spark.work.full_disks import FullDisks
from emberkeep.spark.work.logged_events import lasting_events
from emberkeep.spark.work.reader import WorkReader
from emberkeep.spark.work.status_store import StatusStore

_STOP_SECONDS = 20.0
_JVM_EXIT_SECONDS = 10.0

__all__ = [
    "ApplicationListener",
    "DriverRuntime",
    "DriverSettings",
    "JobFiles",
    "JvmExit",
    "ObservedQuery",
    "SparkApplication",
    "install",
]


class DriverRuntime:
    """Access to the running driver for Emberkeep's own threads.

    Any thread may call the methods, which block while they call the JVM. Make all calls from one thread if possible:
    PySpark creates a connection and a JVM thread for each calling thread.
    """

    def __init__(
        self,
        contexts: ContextHook,
        queries: QueryHook,
        placement: StatePlacement | None,
        procedures: QueryProcedures,
        functions: DriverFunctions,
        script: ScriptQueries,
    ) -> None:
        self.procedures = procedures
        self.functions = functions
        self._cordon = Cordon()
        self._demand: DemandReader | None = None  # of the newest SparkContext
        self._work = WorkReader()
        self._full_disks = FullDisks()
        self._status: StatusStore | None = None  # of the newest SparkContext
        self._contexts = contexts
        self._queries = queries
        self._sessions = SessionQueries()
        self._placement = placement
        self._script = script

    def executor_ids(self) -> frozenset[str]:
        """Return the executors registered with Spark. Raises SparkUnavailable (no SparkContext, or no JVM)."""
        registered = scheduler_control.executor_ids(self._context())
        self.functions.executors_seen(registered)
        return registered

    def silent_executors(self, executor_ids: Collection[str]) -> frozenset[str]:
        """Return the executors that have sent Spark no heartbeat for several intervals. Raises SparkUnavailable."""
        return scheduler_control.silent_executors(self._context(), executor_ids)

    def block_takers(self) -> frozenset[str]:
        """Return the executors that can take over blocks of other executors. Raises SparkUnavailable."""
        return executor_blocks.block_takers(self._context())

    def excluded_executors(self) -> frozenset[str]:
        """Return the executors that Spark excludes because tasks failed there repeatedly. Raises SparkUnavailable."""
        return executor_blocks.excluded_executors(self._context())

    def blocks_left(self, executor_ids: Collection[str]) -> dict[str, ExecutorBlocks]:
        """Return the blocks and tasks that each of these executors still has. Raises SparkUnavailable."""
        return executor_blocks.blocks_left(self._context(), executor_ids)

    def cordon(self, executor_ids: Collection[str]) -> frozenset[str]:
        """Keep new tasks from exactly these executors; return the ones now cordoned. Raises SparkUnavailable."""
        return self._cordon.change(self._context(), executor_ids)

    def executor_demand(self) -> ExecutorDemand:
        """Return how many executors dynamic allocation wants, and which it removes. Raises SparkUnavailable.

        Executors that are only cordoned are not among the decommissioned ones.
        """
        context = self._context()
        if self._demand is None or not self._demand.is_of(context):
            self._demand = DemandReader(context)
        return self._demand.read(self._cordon.touched)

    def resize(self, count: int, *, decommissions: bool) -> None:
        """Make Spark want ``count`` executors, and dismiss the newest ones beyond. Raises SparkUnavailable."""
        resize(self._context(), count, decommissions=decommissions)

    def remove_executor(self, executor_id: str, reason: str, *, caused_by_app: bool = False) -> None:
        """Make Spark drop an executor, and stop it if it still runs; unknown ids are ignored.

        Spark retries the executor's tasks at once. With ``caused_by_app`` the loss counts against
        ``spark.task.maxFailures``: set it if, for example, the job's own memory use killed the executor. Raises
        SparkUnavailable.
        """
        scheduler_control.remove_executor(self._context(), executor_id, reason, caused_by_app=caused_by_app)
        self.functions.executor_removed(executor_id)

    def streaming_progress(self, reported: Mapping[str, ReportKey] = NOTHING_REPORTED) -> list[ObservedQuery]:
        """Return the progress of each streaming query; an ended one is included once more. Raises SparkUnavailable.

        ``reported``: see ``query_progress``.
        """
        context = self._context()
        own = self._queries.progress(reported)
        return own + self._sessions.progress(context, {query.run_id for query in own}, reported)

    def work(self, *, up_to_now: bool = False) -> AttemptWork:
        """Return the jobs, stages and tasks of this attempt, those of earlier SparkContexts included.

        ``up_to_now``: wait, for a moment, until Spark has counted everything that has happened. Raises
        SparkUnavailable.
        """
        context = self._context()
        if self._status is None or not self._status.is_of(context):
            self._status = StatusStore(context)
        if up_to_now:
            self._status.wait_for_events()
        return self._work.read(self._status)

    def lacking_space(self, failed: int) -> frozenset[str]:
        """Return the executors in which tasks have failed since the last call because the disk is full.

        ``failed``: number of tasks that have failed so far, see ``work``, which must have been called. Raises
        SparkUnavailable.
        """
        return frozenset() if self._status is None else self._full_disks.read(self._status, failed)

    def first_times(self) -> FirstTimes:
        """Return a reader of the times when the application reached its milestones. Raises SparkUnavailable."""
        return FirstTimes(self._context(), self._script)

    def ui_address(self) -> str | None:
        """Return the URL of the Spark UI; None if it is turned off. Raises SparkUnavailable."""
        context = self._context()
        address: str | None = call("address of the Spark UI", lambda: context.uiWebUrl)
        return address

    def lasting_events(self, file: Path) -> list[bytes]:
        """Return the newest lines of an event log's file that the Spark UI needs when the file is gone.

        Raises SparkUnavailable, Damaged.
        """
        return lasting_events(self._context(), file)

    def executors_changed(self) -> None:
        """Report to Spark again where the state of running queries is, after executors came or went; log failures."""
        if self._placement is not None:
            self._placement.executors_changed()

    def application_up(self) -> bool:
        """True if a SparkContext is up now."""
        return self._contexts.context is not None

    def jvm_pid(self) -> int | None:
        """Return the JVM's process id; None before the first SparkContext."""
        jvm = self._contexts.jvm
        return None if jvm is None else jvm.pid

    def jvm_died(self) -> JvmExit | None:
        """Return how the JVM ended on its own or by a signal; None before start, while it runs and after shutdown."""
        jvm = self._contexts.jvm
        return None if jvm is None else jvm.died()

    def stop_spark(self, seconds: float = _STOP_SECONDS) -> bool:
        """Stop the SparkContext if the script left it running.

        Return False if that failed, or has not ended after ``seconds``: the application may still run.
        """
        context, jvm = self._contexts.context, self._contexts.jvm
        if context is None or jvm is None or jvm.died() is not None:
            return True
        stopped = threading.Event()

        def stop() -> None:
            with contextlib.suppress(SparkUnavailable):
                call("stopping the SparkContext", context.stop)
                stopped.set()

        stopper = threading.Thread(target=stop, name="emberkeep-stop", daemon=True)
        stopper.start()
        stopper.join(seconds)
        return stopped.is_set()

    def end_jvm(self) -> None:
        """End the JVM. Kill it if it has not ended within 10 s."""
        jvm = self._contexts.jvm
        if jvm is not None:
            jvm.stop(_JVM_EXIT_SECONDS)

    def _context(self) -> Any:
        context = self._contexts.context
        if context is None:
            raise SparkUnavailable("no SparkContext runs in this driver")
        return context


def install(
    settings: DriverSettings,
    listener: ApplicationListener,
    survey: Surveyor | None = None,
    may_commit: Callable[[], None] = lambda: None,
    open_objects: Callable[[str], SavepointObjects | None] = lambda _: None,
    require_own_place: Callable[[], None] = lambda: None,
    take_jvm: TakeJvm = lambda _plan, _settings: None,
) -> DriverRuntime:
    """Prepare this process for the user's script; call this once, before any of the user's code.

    - ``survey``: returns which state files the job's nodes hold; None to place tasks without regard to state.
    - ``may_commit``: returns once this attempt may commit.
    - ``open_objects``: opens a savepoint location in an object store; returns None if the location is a directory.
    - ``require_own_place``: raises Unavailable while the storage of the job's own checkpoints is unavailable.
    - ``take_jvm``: gives the driver a standby JVM, if one fits.

    Raises SparkInternalsMissing (an unsupported PySpark), OSError (scratch directory).
    """
    _set_up_python(settings)
    notices = Notices()
    committed = CommittedBefore(settings.committed, notices)
    places = CheckpointPlaces(require_own_place, settings.committed, notices)
    locations: StateLocations = DirectLocations()
    placement = None
    if settings.gateway_job is not None:
        gateway = gateway_address(encrypts=settings.encrypts)
        locations = GatewayLocations(gateway, settings.gateway_job, settings.checkpoint_root, notices)
        if survey is not None:
            placement = StatePlacement(gateway, settings.gateway_job, settings.checkpoint_root, survey)
    known = ScriptQueries()
    gate = AwaitGate(notices, held=settings.asked_before in ENDINGS)
    plans = PlanGate()
    storages = SavepointStorages(open_objects, settings.scratch_dir / "savepoint")
    job_id, attempt = settings.job_id or JobId(""), current_job().attempt
    states = FunctionStates(settings.checkpoint_root, job_id, attempt, locations, places, may_commit, notices)
    procedures = QueryProcedures(
        known, gate, plans, storages, may_commit, settings.asked_before, states, settings.step_seconds
    )
    restore = Restore(settings.savepoint, job_id, storages, states, may_commit, notices)
    starts = OrderedStarts(gate, restore, procedures, may_commit)
    queries = QueryHook(settings.checkpoint_root, locations, places, placement, committed, notices, known, starts)
    contexts = ContextHook(settings, _Forgetting(listener, queries), notices, take_jvm)
    contexts.install()
    refuse_executor_profiles()
    queries.install()
    install_await_hook(gate, known)
    guard_checkpoints(may_commit, plans.planning, plans.committed)
    leave_refusals_out_of_logs()
    restored = _function_states(contexts, restore)
    seconds = settings.function_seconds
    port = WorkerPort(settings.host, attempt, link_encryption(settings.tls), settings.bind_host)
    executors = ExecutorFunctions(port, restored, seconds)
    functions = DriverFunctions(
        REGISTRY, restored, executors, lambda: not gate.is_open, known.has_failed, seconds, known.stop
    )
    FunctionHooks(functions, REGISTRY).install()
    functions.follow()
    add_to_path(settings.job_files)  # last, so that no file of the job replaces a module that is imported above
    return DriverRuntime(contexts, queries, placement, procedures, functions, known)


def _set_up_python(settings: DriverSettings) -> None:
    """Set this process's environment to that of the job's Python workers."""
    os.environ["PYSPARK_PYTHON"] = (
        settings.spark_conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    # Without it, each Python worker hashes strings differently; spark-submit sets it, too.
    os.environ.setdefault("PYTHONHASHSEED", "0")


def _function_states(contexts: ContextHook, restore: Restore) -> Callable[[], Mapping[str, bytes]]:
    """Return a function that reads the restored states of user functions, see ``Restore.function_states``.

    The returned function raises SparkUnavailable if no SparkContext is up, and whatever Restore raises.
    """

    def states() -> Mapping[str, bytes]:
        from pyspark.sql import SparkSession

        if contexts.context is None:
            raise SparkUnavailable("no SparkContext runs in this driver")
        return restore.function_states(SparkSession(contexts.context))

    return states


class _Forgetting:
    """Listener that forwards each call, and forgets the queries when their SparkContext has stopped."""

    def __init__(self, listener: ApplicationListener, queries: QueryHook) -> None:
        self._listener = listener
        self._queries = queries

    def application_started(self, application: SparkApplication) -> None:
        self._listener.application_started(application)

    def application_stopping(self, app_id: str) -> None:
        self._listener.application_stopping(app_id)

    def application_stopped(self, app_id: str) -> None:
        self._queries.forget()
        self._listener.application_stopped(app_id)
