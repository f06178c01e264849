"""Merge two entries about the same place."""

from __future__ import annotations

from emberkeep.blocklist.model import CAUSES_KEPT, BlockAction, Blocked, EvacuatedDrivers, entry_about

_STRENGTH = {BlockAction.MARK_BLOCKED: 0, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS: 1}


def merged(old: Blocked, new: Blocked) -> Blocked:
    """Merge two entries about one place.

    The result has the stronger action, the earlier start, the later end, and the causes of both in order, without
    repeats. Drivers are restarted if either entry says so. Merging the same entry again changes nothing. The order of
    the two entries affects only the order of the causes and, beyond CAUSES_KEPT, which of them are kept.
    """
    causes = dict.fromkeys((*old.causes, *new.causes))
    return entry_about(
        old.place,
        action=max(old.action, new.action, key=_STRENGTH.__getitem__),
        start_ms=min(old.start_ms, new.start_ms),
        end_ms=max(old.end_ms, new.end_ms),
        causes=tuple(causes)[:CAUSES_KEPT],
        drivers=EvacuatedDrivers.RESTART
        if EvacuatedDrivers.RESTART in (old.drivers, new.drivers)
        else EvacuatedDrivers.WAIT,
    )


def covers(old: Blocked, new: Blocked) -> bool:
    """True if merging ``new`` into ``old`` would change nothing."""
    return merged(old, new) == old
