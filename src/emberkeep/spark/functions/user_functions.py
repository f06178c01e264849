"""The user functions of a job's driver: begin them, and call their lifecycle methods.

A function is any object with at least one of the methods of ``emberkeep.api``; each method is optional (END-10).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import structlog

from emberkeep.api.executor_functions import serve_link
from emberkeep.api.function_state import encode_state
from emberkeep.api.functions import FollowsQueries, close_once, keeps_state
from emberkeep.api.registry import Registered, Registry
from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.functions.begun_functions import BegunFunctions
from emberkeep.spark.functions.calls import FunctionCalls
from emberkeep.spark.functions.driver_states import DriverStates
from emberkeep.spark.functions.executor_functions import ExecutorFunctions

log = structlog.get_logger(__name__)

_NAMES_SHOWN, _NAME_SHOWN = 20, 200  # maximum number of names shown, and of characters of each


class DriverFunctions:
    """Implements lifecycle.ports.UserFunctions. There is one per process, and any thread may use it.

    Functions on executors are called before those in this process, because rows flow from the former to the latter. A
    function gets its state and is opened when it is found, before the query that it belongs to starts.
    """

    def __init__(
        self,
        registry: Registry,
        restored: Callable[[], Mapping[str, bytes]],
        executors: ExecutorFunctions,
        ended_on_request: Callable[[], bool] = lambda: False,
        failed: Callable[[], bool] = lambda: False,
        seconds: float = 600.0,
        end_queries: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the owner of the functions, which does nothing before ``follow``.

        - ``restored``: returns the states that functions begin with, by name; raises SparkUnavailable while there is no
          SparkContext.
        - ``ended_on_request``: returns true if a procedure has ended the job, or is doing so.
        - ``failed``: returns true if a query of the script has failed.
        - ``seconds``: time limit of one call of a function.
        - ``end_queries``: stops the queries that the script has left running, before their functions and Spark end.
        """
        self._registry = registry
        self._executors = executors
        self._ended_on_request = ended_on_request
        self._failed = failed
        self._end_queries = end_queries
        self.begun = BegunFunctions(registry, restored, seconds)
        self._states = DriverStates(restored)
        self._calls = FunctionCalls(seconds)
        self._asked: set[str] = set()  # functions whose state the newest snapshot asked for
        self._ending = threading.RLock()  # only one thread at a time runs the steps at the sources' end
        self._ended_badly = False
        self._lock = threading.RLock()  # guards the next one
        self._stopped_badly: list[Any] = []  # functions whose SparkContext was stopped after an error

    def follow(self) -> None:
        """Begin each function that is registered from now on, and accept connections from executors."""
        self._registry.follow(self.begun.begin, self.has_other_end)
        serve_link(self._executors.link)

    # --- UserFunctions ------------------------------------------------------------------------------------------------

    def prepare_to_shutdown(self) -> None:
        self._end_well("prepare_to_shutdown", self.begun.living())

    def snapshot_state(self, checkpoint_id: int) -> dict[str, bytes]:
        """Return the states of all functions, those included that are not registered yet or have ended."""
        del checkpoint_id
        states = self._executors.snapshot_state()
        living = [entry for entry in self.begun.living() if not self.begun.has_ended(entry)]
        self._asked = {entry.name for entry in living}
        # Without those that close meanwhile: they keep their states.
        taken: dict[str, bytes | None] = {entry.name: None for entry in living if not keeps_state(entry.function)}
        for name, state in self._call_all(living, "snapshot_state").items():
            try:
                taken[name] = None if state is None else encode_state(name, state)
            except EmberkeepError as error:
                raise UserFunctionFailed(error.message, hint=error.hint) from error
        return states | self._states.snapshot(taken)

    def losses(self) -> list[str]:
        return self._executors.losses()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._executors.notify_checkpoint_complete(checkpoint_id)
        asked = [entry for entry in self.begun.living() if entry.name in self._asked]
        self._call_all(asked, "notify_checkpoint_complete", checkpoint_id)

    def shutdown(self) -> None:
        self._end_well("shutdown", self.begun.living())

    def close(self) -> None:
        """Close functions on executors, then those here in reverse order: later ones may use earlier ones."""
        self._calls.close_all(self._closings())

    def with_state(self) -> tuple[str, ...]:
        """Return the names of functions that may have state, for display: at most 20 names of 200 characters."""
        names = self._executors.names() | {entry.name for entry in self.begun.living() if keeps_state(entry.function)}
        return tuple(name[:_NAME_SHOWN] for name in sorted(names)[:_NAMES_SHOWN])

    # --- reports on executors from Spark ----------------------------------------------------------------------------

    def executors_seen(self, executor_ids: Collection[str]) -> None:
        """Record which executors are registered with Spark now."""
        self._executors.executors_seen(executor_ids)

    def executor_removed(self, executor_id: str) -> None:
        """Record that Spark is removing an executor: the instances on it get a deadline."""
        self._executors.executor_removed(executor_id)

    # --- the script's own end -----------------------------------------------------------------------------------------

    def ended_badly(self) -> None:
        """Record that the script is being cancelled, or has failed: from now on, functions are only closed.

        Call this from any thread, or in a signal handler.
        """
        self._ended_badly = True

    def has_other_end(self, function: Any = None) -> bool:
        """True if the job was stopped, was cancelled or has failed, so that its sources have not ended.

        ``function``: True as well if only the SparkContext in which this function was used has failed.
        """
        with self._lock:
            is_left = any(each is function for each in self._stopped_badly)
        return is_left or self._ended_badly or self._ended_on_request()

    def sources_ended(self) -> None:
        """Run the steps at the end of all sources: end the queries, then prepare, shut down and close the functions.

        Call this when the script has ended successfully on its own. It does nothing if the job ended in another way, a
        query has failed or no function is left. Raises UserFunctionFailed, which makes the job's end a failure.
        """
        with self._ending:
            if not self._has_any() or self.has_other_end() or self._query_failed():
                return
            self._end_queries()
            well = [entry for entry in self.begun.living() if not self.has_other_end(entry.function)]
            steps = (
                functools.partial(self._end_well, "prepare_to_shutdown", well),
                functools.partial(self._end_well, "shutdown", well),
            )
            for step in (*steps, self.close):
                if not self.has_other_end():  # the job may be cancelled between steps
                    step()

    def spark_stops(self, *, failed: bool) -> None:
        """Take the steps at the sources' end while Spark still runs, then close the functions on executors.

        ``failed``: Spark stops because of an exception. In that case, or if a query has failed, the sources have not
        ended: skip these steps. The functions are only closed then, unless the script goes on to use them in another
        SparkContext, as one does that tries again.
        """
        if self._has_any():
            if failed or self._query_failed():
                living = self.begun.living()
                with self._lock:
                    self._stopped_badly += [entry.function for entry in living]
            else:
                self.sources_ended()
            self._executors.close()  # in every case: executors end with Spark

    # --- finding and calling ------------------------------------------------------------------------------------------

    def used(self, function: Any) -> None:
        """Record that the script gives this function to a query."""
        with self._lock:
            self._stopped_badly = [each for each in self._stopped_badly if each is not function]

    def query_started(self, query_id: str, checkpoint: Callable[[], object]) -> None:
        """Notify the functions that follow queries. ``checkpoint``: returns the location of the query's checkpoint."""
        following = [entry.function for entry in self.begun.living() if isinstance(entry.function, FollowsQueries)]
        if following:
            place = checkpoint()
            for function in following:
                function.query_started(query_id, str(place))

    def _closings(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each function's name and close method once; all functions on executors are one entry.

        A function ends when it is yielded, so that it gets no further call even if its close hangs.
        """
        yield "functions on executors", self._executors.close
        while (entry := self.begun.end_newest()) is not None:
            yield entry.name, functools.partial(close_once, entry.function)

    def _has_any(self) -> bool:
        return bool(self.begun.living() or self._executors.instances())

    def _query_failed(self) -> bool:
        try:
            return self._failed()
        except Exception as error:  # noqa: BLE001 - whatever Py4J raises: without Spark there is no successful end
            log.warning("cannot tell whether a query has failed: Spark does not answer", reason=str(error))
            return True

    def _end_well(self, method: str, entries: list[Registered]) -> None:
        self._executors.call_all(method)
        self._call_all(entries, method)

    def _call_all(self, entries: list[Registered], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of each function that has it; return results by name.

        The first failure is raised and ends the calls. The caller must then repeat all of them, or continue the job.
        """
        results = {}
        for entry in entries:
            found = getattr(entry.function, method, None)
            if callable(found) and not self.begun.has_ended(entry):
                results[entry.name] = self._calls.call(entry.name, method, found, *arguments)
        return results
