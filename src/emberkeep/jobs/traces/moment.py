"""The time of an event, as jobs' state machines receive it."""

from __future__ import annotations

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """The time of an event, and a random number for decisions about it.

    ``at``: monotonic seconds. ``ms``: Unix milliseconds. ``chance``: a random number in [0, 1). ``hears_since``:
    monotonic seconds since which this leader has had contact with most of its peers; None while it has not.
    """

    at: float
    ms: int
    chance: float = 0.5
    hears_since: float | None = 0.0
