"""The flows of the pipeline that this process runs, from the events that Spark sends.

An event has no other fields than a time and a message, so the flow and its state are read from the message. The main
thread notes events, other threads read the flows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from emberkeep.chronicle.occurrence import shortened
from emberkeep.jobs.progress.flows import FlowProgress, with_event

# "Flow spark_catalog.default.orders is RUNNING.", "Flow 'spark_catalog.default.orders' has FAILED."
_MESSAGE = re.compile(r"Flow (?:'(?P<quoted>[^']+)'|(?P<plain>\S+)) (?:is |has )?(?P<state>[A-Z]{4,})\b")


class _Known:
    flows: Mapping[str, FlowProgress] = MappingProxyType({})


def flow_event(message: str, time_ms: int) -> FlowProgress | None:
    """Return what an event says about a flow; None if it is about the run, or names no state."""
    found = _MESSAGE.match(message)
    if found is None:
        return None
    name = found["quoted"] or found["plain"]
    return FlowProgress(name=name, state=found["state"], changed_ms=time_ms, message=shortened(message))


def note_event(message: str, time_ms: int) -> None:
    """Note an event of the run."""
    event = flow_event(message, time_ms)
    if event is not None:
        _Known.flows = with_event(_Known.flows, event)


def known_flows() -> tuple[FlowProgress, ...]:
    """Return the flows about which there were events."""
    return tuple(_Known.flows.values())
