"""A listener for the starts of streaming queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def listener_of_starts(started: Callable[[Any], None]) -> Any:
    """Return a StreamingQueryListener that calls ``started`` with the event of each query's start.

    The call is made on the query's own thread, before the query becomes active. The script's ``start`` returns only
    after the call.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class QueryListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark's name
            started(event)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            del event

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            del event

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            del event

    return QueryListener()
