"""Hooks in PySpark that find the user functions passed to Spark, and notice when queries start and when Spark stops.

A worker that was forked from the driver has the hooks as well; there they do nothing.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from emberkeep.api.foreach_functions import ForeachObjects
from emberkeep.api.registry import Registry, outlives_batches, takes_part
from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.functions.user_functions import DriverFunctions


class FunctionHooks:
    """Adds the functions that it finds to ``registry``; notifies ``functions`` of query starts and of Spark's stop."""

    def __init__(self, functions: DriverFunctions, registry: Registry) -> None:
        self._functions = functions
        self._registry = registry
        self._foreach = ForeachObjects()
        self._pid = os.getpid()

    def install(self) -> None:
        """Patch PySpark, after all other hooks are installed. Raises SparkInternalsMissing."""
        from pyspark.core.context import SparkContext
        from pyspark.sql.streaming.query import StreamingQueryManager
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        places: tuple[tuple[Any, str, Any], ...] = (
            (DataStreamWriter, "foreachBatch", self._around_function),
            (DataStreamWriter, "foreach", self._around_foreach),
            (DataStreamWriter, "start", self._around_start),
            (DataStreamWriter, "toTable", self._around_start),
            (StreamingQueryManager, "addListener", self._around_function),
            (SparkContext, "stop", self._around_stop),
        )
        for kind, name, around in places:
            if not hasattr(kind, name):
                raise SparkInternalsMissing(
                    f"this PySpark has no {kind.__name__}.{name}", hint="Emberkeep works with PySpark 4.3"
                )
            setattr(kind, name, around(getattr(kind, name)))

    def _around_function(self, original: Any) -> Any:
        @functools.wraps(original)
        def given(owner: Any, function: Any) -> Any:
            if os.getpid() == self._pid:
                # For a bound method, register its object if the object has lifecycle methods other than `close`.
                target = getattr(function, "__self__", function)
                if takes_part(target) and (target is function or hasattr(target, "prepare_to_shutdown")):
                    self._registry.add(target)
                    self._functions.used(target)
            return original(owner, function)

        return given

    def _around_foreach(self, original: Any) -> Any:
        @functools.wraps(original)
        def foreach(writer: Any, function: Any) -> Any:
            if os.getpid() == self._pid and outlives_batches(function):
                function = self._foreach.stand_in(function)
            return original(writer, function)

        return foreach

    def _around_start(self, original: Any) -> Any:
        @functools.wraps(original)
        def start(writer: Any, *positional: Any, **named: Any) -> Any:
            if os.getpid() != self._pid:
                return original(writer, *positional, **named)
            self._functions.begun.begin_all()
            query = original(writer, *positional, **named)
            self._functions.query_started(
                str(query.id),
                lambda: call("checkpoint of a query", lambda: query._jsq.streamingQuery().resolvedCheckpointRoot()),
            )
            return query

        return start

    def _around_stop(self, original: Any) -> Any:
        @functools.wraps(original)
        def stop(context: Any) -> None:
            if os.getpid() == self._pid:
                self._functions.spark_stops(failed=_is_failure(sys.exc_info()[1]))
            original(context)

        return stop


def _is_failure(error: BaseException | None) -> bool:
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))
