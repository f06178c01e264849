"""What is noted about a change of the blocklist. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from emberkeep.blocklist.model import BlockAction, Blocked, Blocklist, Place, PlaceKind, Removal
from emberkeep.chronicle.occurrence import Occurrence, What


def blocklist_changes(before: Blocklist, after: Blocklist, by: str) -> Iterator[Occurrence]:
    """Yield an occurrence for each entry that is new, different or gone. ``by``: the identity that asked, or ""."""
    old = {entry.place: entry for entry in before.entries}
    new = {entry.place: entry for entry in after.entries}
    removed = {removal.place: removal for removal in after.removals if removal.revision > before.revision}
    for place, entry in new.items():
        if old.get(place) != entry:
            yield _blocked(entry, by)
    for place in old.keys() - new.keys():
        yield _unblocked(place, by, expired=_has_expired(old[place], removed.get(place)))


def _blocked(entry: Blocked, by: str) -> Occurrence:
    evacuates = entry.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
    verb = "evacuated" if evacuates else "blocked"
    who = f"{by} {verb} {entry.place}" if by else f"{entry.place} was {verb}"
    return Occurrence(
        what=What.BLOCKED if by else What.DETECTED,
        message=f"{who}: {entry.cause}" if entry.cause else who,
        by=by,
        details={"action": entry.action.value, "cause": entry.cause, "until": str(entry.end_ms)},
        node=_node(entry.place),
        task_manager=_task_manager(entry.place),
    )


def _has_expired(entry: Blocked, removal: Removal | None) -> bool:
    """True if nobody has removed an entry. ``removal``: None if it has been forgotten: many have expired at once."""
    return removal is None or (not removal.by_hand and removal.at_ms >= entry.end_ms)


def _unblocked(place: Place, by: str, *, expired: bool) -> Occurrence:
    if expired:
        message = f"the block of {place} has expired"
    else:
        message = f"{by} unblocked {place}" if by else f"{place} was unblocked"
    return Occurrence(
        what=What.UNBLOCKED,
        message=message,
        by="" if expired else by,
        node=_node(place),
        task_manager=_task_manager(place),
    )


def _node(place: Place) -> str:
    return place.id if place.kind is PlaceKind.NODE else ""


def _task_manager(place: Place) -> str:
    return place.id if place.kind is PlaceKind.TASK_MANAGER else ""
