"""Carries out the steps of a procedure in the driver process, on its streaming queries and user functions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from emberkeep import __version__
from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.lifecycle.errors import StepHangs
from emberkeep.lifecycle.machine import Noted, Step, StepDone
from emberkeep.lifecycle.manifest import Manifest, savepoint_directory
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.lifecycle.ports import UserFunctions
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.procedures import QueryProcedures
from emberkeep.spark.stopping.savepoint_copy import CopyProgress

log = structlog.get_logger(__name__)

_PAUSE = 0.1
_GRACE = 120.0  # seconds beyond a step's limit, in which the step itself may detect the limit and interrupt a batch
_DISCARD_SECONDS = 60.0  # the longest wait for a store that does not answer when a savepoint is discarded
_LEFT_BY = 20  # attempts before this one whose leftovers are removed


class DriverProcedures:
    """Implements ProcedureSteps in the driver process.

    ``runtime`` and ``functions`` return None until the driver is set up. ``leave(outcome)`` ends the process with that
    outcome. ``step_seconds``: time limit for each step without a deadline of its own.
    """

    def __init__(
        self,
        spec: DriverSpec,
        clock: Clock,
        runtime: Callable[[], DriverRuntime | None],
        functions: Callable[[], UserFunctions | None],
        leave: Callable[[AttemptOutcome], Awaitable[None]],
        step_seconds: float = 3600.0,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._runtime = runtime
        self._functions = functions
        self._leave = leave
        self._step_seconds = step_seconds
        self._thread = _new_thread()
        self._states: dict[str, Mapping[str, bytes]] = {}  # of functions, by the trigger id of the newest request
        self._lock = threading.Lock()
        self._note: Noted | None = None
        self._limited: tuple[ProcedureRequest, Limit] | None = None  # the newest request with a deadline, and its limit

    def noted(self) -> Noted | None:
        with self._lock:
            return self._note

    def is_fulfilled(self, request: ProcedureRequest) -> bool:
        before = self._spec.procedure
        asked_before = before is not None and before.trigger_id == request.trigger_id
        return asked_before and request.procedure is Procedure.MOVE

    async def run(self, step: Step, request: ProcedureRequest, reason: str) -> StepDone:
        trigger_id = request.trigger_id
        if step is Step.LEAVE:
            await self._leave(_moved())
            return StepDone(trigger_id, step)
        if step is Step.FAIL_ATTEMPT:
            await self._leave(AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=reason))
            return StepDone(trigger_id, step)
        work = partial(self._carry_out, step, request)
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        began = time.monotonic()
        bound = self._bound(step, request)
        while True:
            await asyncio.wait({running}, timeout=bound)
            if running.done():
                return running.result()
            bound = self._further_bound(step)
            if bound == 0.0:
                raise self._abandoned(step, running, time.monotonic() - began)

    def _abandoned(self, step: Step, running: asyncio.Future[StepDone], seconds: float) -> StepHangs:
        log.error("a step hangs; no longer waiting for it", step=step.value, seconds=round(seconds))
        running.add_done_callback(partial(_ended_late, step))
        self._thread.shutdown(wait=False)
        self._thread = _new_thread()
        hint = "check for a file system or a user function that does not answer, or raise "
        hint += "execution.stop.savepoint-timeout"
        if step is Step.FINISH_BATCHES:
            hint = "check that the storage of the checkpoints answers; 'emberkeep cancel' ends the job without it"
        return StepHangs(f"step {step.value} did not end within {seconds:.0f} s", hint=hint)

    def _bound(self, step: Step, request: ProcedureRequest) -> float | None:
        """Return the seconds after which a step counts as hanging; None for a step that keeps the request's deadline.

        A step with its own time limit ends by itself before that.
        """
        match step:
            # They hold all queries, so what one of them waits for must not hold the others for ever.
            case Step.FINISH_BATCHES | Step.PAUSE:
                left = self._limit(request).seconds_left
                return None if left is None else left + _GRACE
            case Step.DISCARD_SAVEPOINT:
                return min(_DISCARD_SECONDS, self._step_seconds)
            case Step.CHECK:
                return self._step_seconds + (self._limit(request).seconds_left or 0.0) + _GRACE
        return self._step_seconds + _GRACE

    def _further_bound(self, step: Step) -> float:
        """Return for how many seconds more a step may run that has reached its bound.

        FINISH_BATCHES may run batches that were planned, which have a limit of their own.
        """
        runtime = self._runtime()
        if step is not Step.FINISH_BATCHES or runtime is None:
            return 0.0
        at = runtime.procedures.finishing_limit.at
        if at is None:
            return _GRACE  # then look again: the limit may have changed
        return max(0.0, at + _GRACE - time.monotonic())

    def _carry_out(self, step: Step, request: ProcedureRequest) -> StepDone:
        """Carry out the step on the procedure thread. Every failure becomes an EmberkeepError."""
        while (runtime := self._runtime()) is None:
            time.sleep(_PAUSE)  # the driver is being set up
        try:
            return self._step(step, request, runtime.procedures)
        except EmberkeepError:
            raise
        except Exception as error:
            log.exception("a step has failed", step=step.value)
            if not runtime.application_up():
                raise Fatal("the script stopped Spark, and with it its queries, during the procedure") from error
            raise Fatal(f"{type(error).__name__}: {error}", hint="the driver's log has the traceback") from error

    def _step(self, step: Step, request: ProcedureRequest, queries: QueryProcedures) -> StepDone:
        functions = self._functions()
        match step:
            case Step.CHECK | Step.WRITE_SAVEPOINT | Step.DISCARD_SAVEPOINT:
                return self._savepoint_step(step, request, queries)
            case Step.SNAPSHOT_STATE if functions is not None:
                self._states = {request.trigger_id: functions.snapshot_state(request.requested_ms)}
                return StepDone(request.trigger_id, step, warning=_lost(functions.losses()))
            case Step.KEEP_STATE:
                self._keep_states(request, queries)
            case Step.PREPARE_TO_SHUTDOWN | Step.NOTIFY_COMPLETE | Step.SHUTDOWN if functions is not None:
                _call(functions, step, request)
            case _:
                warning = self._query_step(step, request, queries)
                return StepDone(request.trigger_id, step, warning=warning)
        return StepDone(request.trigger_id, step)

    def _keep_states(self, request: ProcedureRequest, queries: QueryProcedures) -> None:
        savepoint = self._directory(request, self._spec.attempt) if request.procedure.makes_savepoint else ""
        queries.keep_states(savepoint, self._states.get(request.trigger_id, {}), self._clock.now_ms())

    def _query_step(self, step: Step, request: ProcedureRequest, queries: QueryProcedures) -> str:
        """Carry out a step on the queries. Return a warning for users, or ""."""
        note = partial(self._take_note, request)
        match step:
            case Step.FINISH_BATCHES:
                queries.finish_batches(note, self._limit(request))
            case Step.PAUSE:
                queries.pause(note, self._limit(request))
            case Step.RETAIN_BATCHES:
                queries.pauses.retain_batches()
            case Step.RESUME:
                queries.pauses.resume()
            case Step.RELEASE_BATCHES:
                return queries.pauses.release_batches()
            case Step.DRAIN:
                return queries.drain(note)
            case Step.START_QUERIES:
                queries.start_queries()
            case Step.END_SCRIPT_WAIT:
                queries.end()
        return ""

    def _savepoint_step(self, step: Step, request: ProcedureRequest, queries: QueryProcedures) -> StepDone:
        directory = self._directory(request, self._spec.attempt)
        match step:
            case Step.CHECK:
                self._states.clear()
                queries.check(directory, partial(self._take_note, request), self._limit(request))
                self._remove_leftovers(request, queries)
            case Step.WRITE_SAVEPOINT:
                watch = partial(self._watch, request)
                states = self._states.get(request.trigger_id, {})
                written = queries.write_savepoint(self._heading(request), directory, states, watch)
                return StepDone(request.trigger_id, step, written.path, written.manifest_sha256)
            case Step.DISCARD_SAVEPOINT:
                queries.discard_savepoint(directory)
        return StepDone(request.trigger_id, step)

    def _directory(self, request: ProcedureRequest, attempt: int) -> str:
        return savepoint_directory(request.target_directory, self._spec.graph.job_id, request.trigger_id, attempt)

    def _remove_leftovers(self, request: ProcedureRequest, queries: QueryProcedures) -> None:
        """Delete the files that earlier attempts may have written for this savepoint.

        The job store does not record them, or else this attempt would not have the request. Only the last _LEFT_BY
        attempts are checked, because each costs some calls.
        """
        before = self._spec.procedure
        if before is not None and before.trigger_id == request.trigger_id:
            for attempt in range(max(1, self._spec.attempt - _LEFT_BY), self._spec.attempt):
                queries.discard_savepoint(self._directory(request, attempt))

    def _limit(self, request: ProcedureRequest) -> Limit:
        if not request.deadline_ms:
            return NO_LIMIT
        with self._lock:
            if self._limited is None or self._limited[0] != request:
                left = request.seconds_left(self._clock.now_ms())
                self._limited = request, Limit(time.monotonic() + left)
            return self._limited[1]

    def _heading(self, request: ProcedureRequest) -> Manifest:
        return Manifest(
            job_id=self._spec.graph.job_id,
            job_name=self._spec.graph.name,
            attempt=self._spec.attempt,
            trigger_id=request.trigger_id,
            procedure=request.procedure,
            created_ms=self._clock.now_ms(),
            spark_version=spark_version(),
            emberkeep_version=__version__,
            queries=(),
            files=(),
        )

    def _take_note(self, request: ProcedureRequest, detail: str) -> None:
        self._say(Noted(request.trigger_id, detail))

    def _watch(self, request: ProcedureRequest, copied: CopyProgress) -> None:
        self._say(
            Noted(
                request.trigger_id,
                f"copying {copied.files_total} files",
                files_done=copied.files,
                files_total=copied.files_total,
                bytes_done=copied.bytes,
                bytes_total=copied.bytes_total,
            )
        )

    def _say(self, note: Noted) -> None:
        with self._lock:
            self._note = note


def _new_thread() -> ThreadPoolExecutor:
    """Return a thread that runs one step at a time, while another thread reads Spark's state."""
    return ThreadPoolExecutor(1, f"{OWN_THREAD_PREFIX}-procedure")


def _ended_late(step: Step, running: asyncio.Future[StepDone]) -> None:
    failure = None if running.cancelled() else running.exception()
    log.warning("a step that hung has ended", step=step.value, failure=str(failure or ""))


def _lost(instances: list[str]) -> str:
    if not instances:
        return ""
    return f"functions were lost with their state since the previous savepoint: {'; '.join(instances)}"


def _call(functions: UserFunctions, step: Step, request: ProcedureRequest) -> None:
    match step:
        case Step.PREPARE_TO_SHUTDOWN:
            functions.prepare_to_shutdown()
        case Step.NOTIFY_COMPLETE:
            functions.notify_checkpoint_complete(request.requested_ms)
        case Step.SHUTDOWN:
            functions.shutdown()


def _moved() -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=FailureKind.MOVED, message="the driver leaves its node")
