"""Text for progress notes: which batch a streaming query is running, and since when."""

from __future__ import annotations

import time

from emberkeep.base.errors import EmberkeepError
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries import checkpoint_logs as logs
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.drain import log_state

_LOOK_SECONDS = 1.0  # minimum time between reads of the logs


class RunningBatch:
    """The batch that a query has planned but not committed, according to its logs."""

    def __init__(self, query: ScriptQuery) -> None:
        self._query = query
        self._looked = 0.0
        self._number = -1  # -1: no batch runs, or the logs could not be read
        self._began_ms = 0

    def __str__(self) -> str:
        """Return "batch 41 of query 'flights' (begun 38 s ago)", or only the query's name if no batch runs."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        if self._number < 0:
            return str(self._query)
        seconds = max(0, int(time.time() - self._began_ms / 1000))
        return f"batch {self._number} of {self._query} (begun {seconds} s ago)"

    def _look(self) -> None:
        self._looked, self._number = time.monotonic(), -1
        if self._query.reached is None:
            return
        files, location = HadoopFiles(self._query.session), self._query.reached.rstrip("/")
        try:
            state = log_state(files, location)
            if not state.is_between_batches:
                self._began_ms = logs.batch_timestamp(files.read_text(f"{location}/offsets/{state.planned}"))
                self._number = state.planned
        except EmberkeepError:
            return  # only the text of a progress note is lost
