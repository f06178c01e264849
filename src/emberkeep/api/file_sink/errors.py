"""The reasons why the sink refuses a batch."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError, Unavailable


class SinkFenced(EmberkeepError):
    """A newer attempt, or another sink object, writes to this output now; this sink no longer changes anything."""


class OutputOfAnotherQuery(EmberkeepError):
    """The output was written by a query with a different checkpoint, whose batch ids refer to different rows."""


class OutputIsAhead(EmberkeepError):
    """A repeated batch has different rows from those in the output: the query was restored from an older checkpoint."""


class BatchesMissing(EmberkeepError):
    """The query is ahead of the output: batches in between were never given to this sink."""


class OutputUnavailable(Unavailable):
    """The output's file system is unavailable, or shows an older copy. Nothing was written; try again later."""


class SinkClosed(EmberkeepError):
    """The sink was closed and refuses further batches."""
