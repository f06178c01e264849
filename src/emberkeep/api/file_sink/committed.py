"""Determines which of the batches that wait in the output Spark has committed.

The checkpoint that a query uses may differ from the one that a batch was written from: a savepoint is restored under
another path and the old checkpoint is deleted, or an older checkpoint replaces it. So the checkpoint with which the
query is running now decides.
"""

from __future__ import annotations

from emberkeep.api.file_sink.model import NOTHING_YET, SinkState
from emberkeep.api.file_sink.ports import Frames


class Commits:
    """Tells which batches Spark has committed.

    ``restored``: a query and its newest committed batch, from the savepoint that the job starts from.
    """

    def __init__(self, frames: Frames, restored: tuple[str, int] | None) -> None:
        self._frames = frames
        self._restored = restored
        self._writing = ""  # the query that has written to this output
        self._running: tuple[str, str] | None = None  # query and checkpoint, once this process has started the query

    def opened(self, state: SinkState) -> None:
        self._writing = state.query

    def started(self, query: str, checkpoint: str) -> None:
        """Record that this process has started ``query``; ignore queries that have not written to this output.

        Any thread may call this.
        """
        if query == self._writing:
            self._running = query, checkpoint

    def arrived(self, query: str, checkpoint: str) -> None:
        """Record that a batch of this query is being written to the output."""
        self._running = query, checkpoint

    def is_known(self, state: SinkState) -> bool:
        """True if the checkpoint with which the query runs now is known."""
        return self._checkpoint(state) is not None

    def newest(self, state: SinkState) -> int:
        """Return the newest batch of the output that Spark has committed; NOTHING_YET for none. Raises RetryLater."""
        if state.last_batch == NOTHING_YET:
            return NOTHING_YET
        checkpoint = self._checkpoint(state)
        if checkpoint is not None:
            found = self._frames.committed(checkpoint, state.last_batch)
            return NOTHING_YET if found is None else found
        if self._restored is not None and self._restored[0] == state.query:
            return min(self._restored[1], state.last_batch)
        found = self._frames.committed(state.checkpoint, state.last_batch)
        # Without that checkpoint: Spark began the last batch only after it had committed the previous one.
        return state.last_batch - 1 if found is None else found

    def _checkpoint(self, state: SinkState) -> str | None:
        query, checkpoint = self._running or ("", None)
        return checkpoint if query == state.query else None
