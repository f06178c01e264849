"""REST bodies about the flows of a declarative pipeline."""

from __future__ import annotations

from emberkeep.protocol.rest import Kebab, Millis


class FlowInfo(Kebab, frozen=True, kw_only=True):
    """What Spark's newest event about a flow says. ``state``: as Spark names it, such as ``RUNNING`` or ``FAILED``.

    ``message``: the event as one line, with the reason if the flow has failed.
    """

    name: str
    state: str
    since: Millis
    message: str
