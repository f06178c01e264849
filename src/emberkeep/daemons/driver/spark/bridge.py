"""The bridge from the JobMaster's thread to the Spark driver in the main thread, and the ends of this process."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import structlog

from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import ExecutorId
from emberkeep.daemons.driver.spark.first_times import first_times
from emberkeep.daemons.driver.spark.view import executor_demand, spark_view
from emberkeep.jobmaster.ports import NO_TIMES, ExecutorDemand, FirstTimes, SparkQuestions, SparkView
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.lifecycle.ports import UserFunctions
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.exception_text import in_one_line
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)


class SparkBridge:
    """Implements SparkDriver with the runtime in the main thread. JVM calls run on a thread of their own."""

    def __init__(self, configuration: Configuration, on_failure: Callable[[AttemptOutcome], None]) -> None:
        self._configuration = configuration
        self._on_failure = on_failure
        # PySpark opens a connection and a JVM thread for each calling thread: one thread is enough.
        self._thread = ThreadPoolExecutor(1, f"{OWN_THREAD_PREFIX}-spark")
        self._placing = ThreadPoolExecutor(1, f"{OWN_THREAD_PREFIX}-placing")  # waits for the JobMaster's loop
        self._placed: Future[None] | None = None  # the newest work of that thread
        self._seen: frozenset[ExecutorId] = frozenset()
        self._missing = frozenset(Milestone)  # milestones that the JobMaster does not know
        self.ui_key = secrets.token_bytes(32)  # to the Spark UI
        self.runtime: DriverRuntime | None = None
        self.functions: UserFunctions | None = None  # the user's functions, once the driver is set up

    async def view(self, asked: SparkQuestions) -> SparkView | None:
        self._missing = asked.milestones
        if self.runtime is None or not self.runtime.application_up():
            return None
        try:
            loop = asyncio.get_running_loop()
            view = await loop.run_in_executor(self._thread, spark_view, self.runtime, asked)
        except SparkUnavailable as error:
            log.debug("Spark does not answer", reason=str(error))
            return None
        if view.executors != self._seen:
            self._seen = view.executors
            self._place_again(self.runtime)
        return view

    def _place_again(self, runtime: DriverRuntime) -> None:
        """Place state by the newest executors, once: work that has not begun yet will see them, too."""
        if self._placed is None or self._placed.running() or self._placed.done():
            self._placed = self._placing.submit(runtime.executors_changed)
            self._placed.add_done_callback(_log_failure)

    def first_times(self) -> FirstTimes:
        """Return when the milestones that the JobMaster does not know were reached. Call on the script's thread."""
        try:
            return NO_TIMES if self.runtime is None else first_times(self.runtime, self._missing)
        except SparkUnavailable as error:
            log.debug("Spark does not answer", reason=str(error))
            return NO_TIMES

    def work(self) -> AttemptWork | None:
        """Return what the attempt has done until now; None if Spark does not answer. Call on the script's thread."""
        try:
            return None if self.runtime is None else self.runtime.work(up_to_now=True)
        except SparkUnavailable as error:
            log.debug("Spark does not answer", reason=str(error))
            return None

    async def ui_address(self) -> str | None:
        """Return the URL of the Spark UI; None if it is turned off. Raises RetryLater."""
        if self.runtime is None or not self.runtime.application_up():
            raise RetryLater("the driver has no SparkContext now", hint="the Spark UI is there while it has one")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self.runtime.ui_address)
        except SparkUnavailable as error:
            raise RetryLater(f"Spark does not answer: {error}") from error

    def lasting_events(self, file: Path) -> Sequence[bytes]:
        """Return lines of an event log's file, see ``DriverRuntime``. Call on a thread of one's own."""
        if self.runtime is None:
            raise SparkUnavailable("no SparkContext is up")
        return self.runtime.lasting_events(file)

    async def demand(self) -> ExecutorDemand | None:
        if self.runtime is None or not self.runtime.application_up():
            return None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, executor_demand, self.runtime)
        except SparkUnavailable as error:
            log.debug("Spark does not answer", reason=str(error))
            return None

    async def resize(self, count: int, *, decommissions: bool) -> None:
        if self.runtime is None or not self.runtime.application_up():
            raise RetryLater("no SparkContext is up")
        resize = partial(self.runtime.resize, count, decommissions=decommissions)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, resize)
        except SparkUnavailable as error:
            raise RetryLater(f"Spark does not answer: {error}") from error

    async def remove_executor(self, executor_id: ExecutorId, reason: str) -> None:
        if self.runtime is None:
            return
        try:
            remove = self.runtime.remove_executor
            await asyncio.get_running_loop().run_in_executor(self._thread, remove, executor_id, reason)
        except SparkUnavailable as error:
            log.info("cannot remove the executor: Spark does not answer", executor=executor_id, reason=str(error))

    async def fail(self, message: str) -> None:
        """End the script with a resource failure, see ``end_script``."""
        log.error("the attempt cannot continue", reason=message)
        await self.end_script(AttemptOutcome(exit_code=1, kind=FailureKind.RESOURCES, message=message))

    async def end_orphan(self, message: str) -> None:
        """End the script because no task manager looks after this process. The attempt counts as lost."""
        log.error("this driver has lost its task manager; ending it", reason=message)
        await self.end_script(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=message))

    async def end_script(self, outcome: AttemptOutcome) -> None:
        """End the script as SIGTERM would, with this outcome. If it does not end in time, kill the process."""
        self._on_failure(outcome)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(self._configuration[CANCELLATION_TIMEOUT])
        log.error("the script did not end in time; ending the process")
        end_session()

    def crashed(self, error: BaseException) -> None:
        """Record that the JobMaster has crashed. The caller must end this process; the attempt counts as lost."""
        text = "".join(traceback.format_exception(error))
        message = f"the driver's JobMaster crashed: {type(error).__name__}: {in_one_line(str(error))}"
        self._on_failure(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=message, traceback=text))

    async def abandon(self, message: str) -> None:
        """Kill this process at once, because a newer attempt runs."""
        superseded(message)


def _log_failure(done: Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("cannot place tasks on the nodes that hold their state", exc_info=error)


def superseded(message: str) -> None:
    """Kill this process and its JVM at once, because a newer attempt runs.

    An orderly end could write to places that the newer attempt already uses.
    """
    log.error("this attempt has been superseded; ending at once", reason=message)
    end_session()


def end_session() -> None:
    """Kill all processes of this process group (the JVM, Python workers), this one included."""
    os.killpg(os.getpgid(0), signal.SIGKILL)
