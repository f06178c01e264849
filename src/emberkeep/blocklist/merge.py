"""How two entries about the same place become one."""

from __future__ import annotations

from emberkeep.blocklist.model import CAUSES_KEPT, BlockAction, Blocked, EvacuatedDrivers, entry_about

_STRENGTH = {BlockAction.MARK_BLOCKED: 0, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS: 1}


def merged(old: Blocked, new: Blocked) -> Blocked:
    """The stronger action, the earlier start, the later end, the causes of both in order and without repeats; drivers
    are restarted when either says so.

    Merging the same entry again changes nothing. Which of two comes first decides the order of the causes, and with
    more than CAUSES_KEPT which ones stay, but nothing else.
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
    """Whether ``old`` says all that ``new`` would add."""
    return merged(old, new) == old
