"""Carries out the steps of a procedure in the driver's process: at its streaming queries and its user functions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from emberkeep import __version__
from emberkeep.base.clock import Clock
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.daemons.driver_spec import DriverSpec
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.lifecycle.machine import Noted, Step, StepDone
from emberkeep.lifecycle.manifest import Manifest, savepoint_directory
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.lifecycle.ports import UserFunctions
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.limit import NO_LIMIT, Limit
from emberkeep.spark.procedures import QueryProcedures
from emberkeep.spark.savepoint_copy import CopyProgress, Written
from emberkeep.spark.script import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)

_PAUSE = 0.1
_LEFT_BY = 20  # attempts before this one


class DriverProcedures:
    """ProcedureSteps. ``runtime``: None until the driver is set up. ``leave``: ends the process with this outcome."""

    def __init__(
        self,
        spec: DriverSpec,
        clock: Clock,
        runtime: Callable[[], DriverRuntime | None],
        functions: Callable[[], UserFunctions | None],
        leave: Callable[[AttemptOutcome], Awaitable[None]],
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._runtime = runtime
        self._functions = functions
        self._leave = leave
        # One step at a time, beside the looks at Spark that go on meanwhile.
        self._thread = ThreadPoolExecutor(1, f"{OWN_THREAD_PREFIX}-procedure")
        self._states: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._note: Noted | None = None

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
        written = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        if written is None:
            return StepDone(trigger_id, step)
        return StepDone(trigger_id, step, written.path, written.manifest_sha256)

    def _carry_out(self, step: Step, request: ProcedureRequest) -> Written | None:
        """On the thread. Raises EmberkeepError, whatever happens."""
        while (runtime := self._runtime()) is None:
            time.sleep(_PAUSE)  # the driver is being set up
        try:
            return self._step(step, request, runtime.procedures)
        except EmberkeepError:
            raise
        except Exception as error:
            log.exception("a step has failed", step=step.value)
            if not runtime.application_up():
                raise Fatal("the script has stopped Spark meanwhile, and its queries with it") from error
            raise Fatal(f"{type(error).__name__}: {error}", hint="the driver's log has the traceback") from error

    def _step(self, step: Step, request: ProcedureRequest, queries: QueryProcedures) -> Written | None:
        directory = self._directory(request, self._spec.attempt)
        functions = self._functions()
        note = partial(self._take_note, request)
        match step:
            case Step.CHECK:
                queries.check(directory, note, self._limit(request))
                self._remove_leftovers(request, queries)
            case Step.FINISH_BATCHES:
                queries.finish_batches(note, self._limit(request))
            case Step.PAUSE:
                queries.pause(note, self._limit(request))
            case Step.RESUME:
                queries.resume()
            case Step.DRAIN:
                queries.drain(note)
            case Step.WRITE_SAVEPOINT:
                watch = partial(self._watch, request)
                return queries.write_savepoint(self._heading(request), directory, self._states, watch)
            case Step.DISCARD_SAVEPOINT:
                queries.discard_savepoint(directory)
            case Step.START_QUERIES:
                queries.start_queries()
            case Step.END_SCRIPT_WAIT:
                queries.end()
            case Step.SNAPSHOT_STATE:
                self._states = {} if functions is None else functions.snapshot_state(request.requested_ms)
            case _ if functions is not None:
                _call(functions, step, request)
        return None

    def _directory(self, request: ProcedureRequest, attempt: int) -> str:
        return savepoint_directory(request.target_directory, self._spec.graph.job_id, request.trigger_id, attempt)

    def _remove_leftovers(self, request: ProcedureRequest, queries: QueryProcedures) -> None:
        """What earlier attempts may have written of this savepoint. None of it is recorded: it would not be asked of
        this one. Attempts long ago are not looked at: each costs some calls."""
        before = self._spec.procedure
        if before is not None and before.trigger_id == request.trigger_id:
            for attempt in range(max(1, self._spec.attempt - _LEFT_BY), self._spec.attempt):
                queries.discard_savepoint(self._directory(request, attempt))

    def _limit(self, request: ProcedureRequest) -> Limit:
        if not request.deadline_ms:
            return NO_LIMIT
        return Limit(time.monotonic() + (request.deadline_ms - self._clock.now_ms()) / 1000)

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
