"""What the autoscaler judges, and what it decides, as plain data."""

from __future__ import annotations

import msgspec


class AutoscaleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and targets of one job; see the options ``execution.autoscale.*``. Times in milliseconds.

    - ``minimum``, ``maximum``: of executors.
    - ``target``: share of its time in which a query is to work, above 0 and at most 1.
    - ``batch_ms``: time for a micro-batch of a query whose trigger has no interval.
    - ``catch_up_ms``: time in which a backlog is to be read.
    - ``up_pause_ms``, ``down_pause_ms``: least time from any change to the next one that adds or removes executors.
    """

    minimum: int
    maximum: int
    target: float
    batch_ms: int
    catch_up_ms: int
    up_pause_ms: int
    down_pause_ms: int


class BatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One progress report of a query. ``began_ms``: Unix time. ``duration_ms`` and ``rows``: of the batch.

    ``interval_ms``: of the query's trigger; 0 if the next batch begins at once. ``backlog_ms``: how long the rows that
    it has not read yet take at the rate of this batch; 0 if unknown.
    """

    query: str
    began_ms: int
    duration_ms: int
    rows: int
    interval_ms: int = 0
    backlog_ms: float = 0.0


class Resized(msgspec.Struct, frozen=True):
    """The job is to have ``count`` executors from now on. ``reason``: a sentence without a full stop."""

    count: int
    reason: str
