"""Flows of a declarative pipeline: what Spark's newest event about each says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from emberkeep.base.compatible import Compatible

FLOWS_KEPT: Final = 200  # flows that a report names: those that came first


class FlowProgress(Compatible, frozen=True, kw_only=True):
    """One flow. ``state``: as Spark names it, such as RUNNING or COMPLETED, since ``changed_ms`` (Unix time)."""

    name: str
    state: str
    changed_ms: int
    message: str


def with_event(flows: Mapping[str, FlowProgress], event: FlowProgress) -> Mapping[str, FlowProgress]:
    """Return the flows by name, in the order in which they came first, with what an event says about one of them."""
    if event.name not in flows and len(flows) >= FLOWS_KEPT:
        return flows
    return {**flows, event.name: event}
