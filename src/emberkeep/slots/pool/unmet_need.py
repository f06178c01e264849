"""The slots that the cluster cannot provide to an attempt, and how long the attempt waits for a first slot."""

from __future__ import annotations

from emberkeep.slots.pool.events import ClusterLacks, PoolEffect
from emberkeep.slots.pool.state import PoolState


class UnmetNeed:
    """Fails an attempt that has had no slot for as long as the request timeout. Part of the SlotPool."""

    def __init__(self, pool: PoolState) -> None:
        self._pool = pool

    def cluster_lacks(self, event: ClusterLacks, _: float) -> list[PoolEffect]:
        self._pool.missing, self._pool.missing_blocked = event.missing, event.blocked
        return []

    def note(self, now: float) -> None:
        """Note when the attempt begins to be without any slot, and when that ends."""
        pool = self._pool
        pool.was_served = pool.was_served or bool(pool.held)
        pool.was_put_back = pool.is_put_back or (pool.was_put_back and not pool.held)
        if pool.held or not pool.wanted or pool.was_put_back or (pool.is_elastic and pool.was_served):
            pool.without_slot_since = None  # an application that has given all its slots back waits for new ones
        elif pool.without_slot_since is None:
            pool.without_slot_since = now

    def review(self, now: float) -> list[PoolEffect]:
        """Fail an attempt that has been without any slot for too long.

        Time during which unblocking nodes, or room on their disks, might help does not count: operators know that the
        job waits.
        """
        pool = self._pool
        if pool.without_slot_since is not None and pool.missing_blocked:
            pool.without_slot_since = now
        since, limit = pool.without_slot_since, pool.limits.request_timeout
        if since is None or pool.failed or not 0 < limit <= now - since:
            return []
        because = f": {pool.missing}" if pool.missing else ""
        return pool.fail(f"not one slot could be had for {limit:g} s (slot.request.timeout){because}")
