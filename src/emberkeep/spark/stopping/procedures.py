"""The steps of a procedure that act on all streaming queries that the script has started.

Apart from the calls around the start of a query, which the script's threads make, all calls come from a single other
thread. Calls block, and each may be repeated.

While the job is being ended, a query that the script starts *starts ended*: it ends before its first batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.errors import NeverPossible, ProcedureRefused, TooLate
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.errors import DrainGivenUp
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery, check_not_failed
from emberkeep.spark.stopping.batch_boundary import (
    Note,
    check_has_boundaries,
    end_between_batches,
    runs,
    start_inside,
    too_late,
)
from emberkeep.spark.stopping.drain import DRAIN_BATCHES, QueryDrains, log_state
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit
from emberkeep.spark.stopping.pauses import QueryPauses, nothing_runs
from emberkeep.spark.stopping.plan_gate import PlanGate
from emberkeep.spark.stopping.restarts import QueryRestarts
from emberkeep.spark.stopping.savepoint_copy import SavepointWriter, Watch, Written
from emberkeep.spark.stopping.savepoint_storage import SavepointStorages
from emberkeep.spark.stopping.savepoint_trial import trial_failure

log = structlog.get_logger(__name__)

ENDINGS = (Procedure.SUSPEND, Procedure.DRAIN)
_SETTLE_SECONDS = 15.0  # a script that awaits no query counts as having started all after this long without a start
_PAUSE = 0.1
_TRIAL_SECONDS = 60.0  # minimum time limit of the test write to a savepoint's directory


class QueryProcedures:
    """The query steps of procedures, one instance per driver process.

    - ``asked_before``: the procedure that an earlier attempt was asked to run. If that procedure ends the job, the
      script's queries start ended, and only batches that were already planned run.
    - ``may_commit``: returns once this attempt may write.
    - ``states``: keeps the states of user functions for later attempts; None to keep none.
    - ``step_seconds``: time limit of the planned batches of one step, and of a savepoint's copy.
    """

    def __init__(
        self,
        queries: ScriptQueries,
        gate: AwaitGate,
        plans: PlanGate,
        storages: SavepointStorages,
        may_commit: Callable[[], None],
        asked_before: Procedure | None = None,
        states: FunctionStates | None = None,
        step_seconds: float = 3600.0,
    ) -> None:
        self.gate = gate
        self.plans = plans
        self._queries = queries
        self._storages = storages
        self._may_commit = may_commit
        self._step_seconds = step_seconds
        self._drain = QueryDrains(queries, may_commit)
        self.pauses = QueryPauses(queries, plans)
        self.restarts = QueryRestarts(queries, gate, lambda query: self._drain.settle(query, self._step_limit()))
        self._asked_before = asked_before
        self._states = states
        self._finishing = NO_LIMIT
        self._drain_begun = False  # an earlier attempt planned a drain's batch before it was lost

    def ended_on_request(self) -> bool:
        """True if a procedure has ended the job, or holds its queries in order to end it."""
        return self.gate.is_closed

    @property
    def finishing_limit(self) -> Limit:
        """The limit that ``finish_batches`` keeps now; none while it completes an earlier attempt's drain.

        Any thread may read it. Past the limit, ``finish_batches`` waits for a file system that does not answer.
        """
        return NO_LIMIT if self._drain_begun else self._finishing

    @property
    def takes_starts(self) -> bool:
        """True if the script may start queries while the gate is held: such queries start ended."""
        return self._asked_before in ENDINGS and self.gate.is_held

    def starts_again(self, query_id: str) -> bool:
        """True while a procedure starts the query with this id again, so that it must run. Any thread may ask."""
        return self._queries.is_starting_again(query_id)

    def before_start(self, query: ScriptQuery) -> bool:
        """Finish a drain that a crash interrupted; return True if the query may run, False if it must start ended.

        Call this when the script starts a query and the query's checkpoint is in place. A query that may run continues
        with the watermark from before the drain.
        """
        ending = self.takes_starts
        if query.reached is None:
            return not ending
        state = log_state(HadoopFiles(query.session), query.reached.rstrip("/"))
        # Asked again: while the state was read, the stop may have failed, and then the job continues.
        self._drain_begun = self._drain_begun or (self.takes_starts and state.drained)
        if not state.is_between_batches and (state.drained or ending):
            log.info("running a batch that was planned", query=str(query), batch=state.planned)
        if not ending:
            self._drain.settle(query, self._step_limit())
            return True
        try:
            self._drain.roll_forward(query, self._step_limit())
        except DrainGivenUp as error:  # the procedure plans the drain again, and reports it if that fails too
            log.warning("a drain is abandoned", query=str(query), reason=error.message)
        return False

    def check(self, directory: str, note: Note, limit: Limit = NO_LIMIT) -> None:
        """Check that a savepoint can be made and that its own ``directory`` is writable. Change no query.

        Raises ProcedureRefused if no query runs, no query has a checkpoint, a query has no batch boundaries, the
        directory is not writable, or the script has not started its queries before the limit is reached.
        """
        self._await_script(note, limit)
        queries = self._ending()
        if not queries:
            raise nothing_runs()
        if all(query.reached is None for query in queries):
            raise _nothing_to_save()
        for query in queries:
            if runs(query):
                check_has_boundaries(query)
        note(f"checking that {directory} is writable")
        self._may_commit()
        session = self._queries.session()
        failure = trial_failure(
            lambda: self._storages.at(directory, HadoopFiles(session)), max(_TRIAL_SECONDS, limit.seconds_left or 0.0)
        )
        if failure is not None:
            raise ProcedureRefused(
                f"cannot write a savepoint to {directory}: {failure.message}", hint=failure.hint
            ) from failure

    def finish_batches(self, note: Note, limit: Limit = NO_LIMIT) -> None:
        """End all queries between two batches; the script still sees them as running.

        If an earlier attempt has begun a drain, ``limit`` no longer applies. Raises ProcedureRefused if no query runs,
        or if a query cannot end between batches; TooLate if one has not ended when the limit is reached; Fatal if a
        query fails; SparkUnavailable.
        """
        self._finishing = limit
        self._await_script(note, limit)
        if not self._ending():
            raise nothing_runs()
        self.pauses.paused_at = {}
        limit = NO_LIMIT if self._drain_begun else limit
        if not self.gate.hold(limit.seconds_left):
            raise too_late("the script was still starting a streaming query")
        queries = self._ending()  # the script may have started another query before the gate was held
        for query in queries:
            query.away = True
        try:
            end_between_batches(queries, self.plans, note, limit)
        except TooLate as error:
            raise (start_inside(error) if self.gate.start_waits else error) from None
        for query in queries:
            self._run_interrupted(query, note, limit)

    def _run_interrupted(self, query: ScriptQuery, note: Note, limit: Limit) -> None:
        """Run the batch that the query had planned but not run when it ended.

        Raises ProcedureRefused (the limit has passed), Fatal, SparkUnavailable.
        """
        if query.reached is None:
            return
        state = log_state(HadoopFiles(query.session), query.reached.rstrip("/"))
        if state.is_between_batches:
            return
        if limit.is_over:
            raise too_late(f"batch {state.planned} of {query} was planned and has not run")
        log.info("running a batch that was planned", query=str(query), batch=state.planned)
        note(f"finishing batch {state.planned} of {query}")
        self._finishing = own_limit = self._step_limit()
        self._drain.roll_forward(query, own_limit)
        self._finishing = limit

    def pause(self, note: Note, limit: Limit = NO_LIMIT) -> None:
        """Wait until the script has started all its queries, then hold them: see ``QueryPauses.pause``."""
        self._await_script(note, limit)
        self.pauses.pause(note, limit)

    def drain(self, note: Note) -> str:
        """Drain all queries that have a checkpoint, including those that had ended on their own before the stop.

        All queries must have ended. Return a sentence about what was not emitted; "" if everything was. Raises what
        ``QueryDrains.drain`` raises for a query that this stop has ended.
        """
        limit = self._step_limit()
        queries = self._queries.recoverable()
        left = [query for query in queries if query.away and not self._drain.drain(query, note, limit)]
        notes = []
        for query in queries:
            if not query.away:
                try:
                    check_not_failed(query, query.handle)
                    if not self._drain.drain(query, note, limit):
                        left.append(query)
                except Fatal as error:  # this query had ended before the stop: the others continue
                    notes.append(
                        f"{query} had ended before the drain: its remaining state was not emitted and is "
                        f"only in the savepoint: {error}"
                    )
        if left:
            notes.append(
                f"timers of {', '.join(map(str, left))} were still setting timers after {DRAIN_BATCHES} planned "
                "batches: what the remaining timers hold back was not emitted and is in the savepoint"
            )
        return "; ".join(notes)

    def write_savepoint(
        self, heading: Manifest, directory: str, functions: Mapping[str, bytes], watch: Watch
    ) -> Written:
        """Write a savepoint of all queries with a checkpoint and of ``functions``, whose states were kept before.

        Raises ProcedureRefused (no query has a checkpoint), RetryLater, Fatal.
        """
        queries = self._queries.recoverable()
        if not queries:
            raise _nothing_to_save()
        return self._writer(directory).write(heading, queries, self.pauses.paused_at, functions, watch)

    def keep_states(self, savepoint: str, functions: Mapping[str, bytes], now_ms: int) -> None:
        """Keep the states of functions durably for later attempts. Raises EmberkeepError.

        ``savepoint``: location of the savepoint that will contain them; "" if the driver moves.
        """
        if self._states is not None:
            self._states.keep(self._queries.session(), savepoint, now_ms, functions)

    def discard_savepoint(self, directory: str) -> None:
        self._writer(directory).discard()

    def start_queries(self) -> None:
        """Start the ended queries again, because the job continues. Raises what a start raises.

        That also ends what an earlier attempt was asked to do: later requests find an attempt like any other.
        """
        self.restarts.start_queries()
        self._asked_before, self._drain_begun = None, False

    def end(self) -> None:
        """Let the script's awaits return, because the queries have ended permanently."""
        self.gate.end()

    def _await_script(self, note: Note, limit: Limit) -> None:
        """Wait until the script has started all its queries. Raises TooLate at the limit, unless a drain has begun."""
        while not self._has_started_all():
            if limit.is_over and not self._drain_begun:
                raise too_late("the script did not start all its streaming queries in time")
            note("waiting for the script to start its streaming queries")
            self.gate.wait_until_awaited(_PAUSE)

    def _has_started_all(self) -> bool:
        """True if the script is taken to have started all its queries: it starts none now, and awaits one.

        It also counts as that if its last start was 15 s ago. If it has started no query, wait for the first one only
        if an earlier attempt was already asked to run a procedure.
        """
        if self.gate.is_starting:  # a start may restore a checkpoint, or run a batch that was planned
            return False
        if self.gate.was_awaited:
            return True
        if not self._queries.all():
            return self._asked_before is None
        return self._queries.quiet_seconds() >= _SETTLE_SECONDS

    def _ending(self) -> list[ScriptQuery]:
        """Return the queries that a stop must end or has ended."""
        return [query for query in self._queries.all() if query.away or runs(query)]

    def _writer(self, directory: str) -> SavepointWriter:
        files, limit = HadoopFiles(self._queries.session()), self._step_limit()

        def may_write() -> None:
            self._may_commit()
            if limit.is_over:
                raise Fatal("the savepoint was not written in time", hint="raise execution.stop.savepoint-timeout")

        return SavepointWriter(files, directory, self._storages.at(directory, files), may_write)

    def _step_limit(self) -> Limit:
        return Limit(time.monotonic() + self._step_seconds)


def _nothing_to_save() -> ProcedureRefused:
    return NeverPossible(
        "no streaming query of the job has a checkpoint, so there is nothing to save",
        hint="queries to the memory sink have no durable state; 'emberkeep cancel' ends the job",
    )
