"""Being told of queries as they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def listener_of_starts(started: Callable[[Any], None]) -> Any:
    """A StreamingQueryListener. ``started``: gets the event on the query's own thread, before it becomes active; the
    script's ``start`` returns after it."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark's name
            started(event)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            del event

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            del event

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            del event

    return Listener()
