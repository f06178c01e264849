"""What the sink refuses."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError, Unavailable


class SinkFenced(EmberkeepError):
    """A newer attempt, or another sink object, writes to this output now: this one changes nothing any more."""


class OutputOfAnotherQuery(EmberkeepError):
    """The output was written by a query with another checkpoint: its batch ids mean other rows."""


class OutputIsAhead(EmberkeepError):
    """A batch comes again with other rows than those that are in the output: an older checkpoint was restored."""


class BatchesMissing(EmberkeepError):
    """The query has gone further than the output: batches in between were never given to this sink."""


class OutputUnavailable(Unavailable):
    """The file system of the output is away, or shows an older copy. Nothing was written: try again once it is back."""


class SinkClosed(EmberkeepError):
    """The sink was closed; it takes no more batches."""
