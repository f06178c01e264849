"""A job store's record of two identities, its own and its storage's. It reveals whether one of them was replaced."""

from __future__ import annotations

from dataclasses import dataclass

# Recorded in place of the storage's identity while only an older release has used the store.
RELEASE_BEFORE = "release-before"


@dataclass(frozen=True)
class StoreOrigin:
    """A job store's record of itself.

    ``identity``: chosen at random when the store was created. ``storage``: identity of the storage that it was used
    with; "" if none yet. ``was_led``: a leader of an older release, which kept no such records, has used the store, and
    no storage has been settled since.
    """

    identity: str
    storage: str
    was_led: bool


def origin_of(identity: str, kept: str) -> StoreOrigin:
    """Return the origin of a store with this ``identity``. ``kept``: what the store has recorded about its storage."""
    was_led = kept == RELEASE_BEFORE
    return StoreOrigin(identity=identity, storage="" if was_led else kept, was_led=was_led)


def kept_first(*, was_led: bool) -> str:
    """Return what a store records when a release that keeps such records first opens it.

    ``was_led``: the store had a leader before, which must have run an older release. So call this only once: later
    leaders may run this release, and may have used a storage that is not this store's.
    """
    return RELEASE_BEFORE if was_led else ""


def kept_after(origin: StoreOrigin, settled: str) -> str:
    """Return what a store records once the ownership of its storage was checked.

    ``settled``: the storage's identity; "" if its owner is not settled. The result is never RELEASE_BEFORE: from now on
    the store keeps such records.
    """
    return settled or origin.storage
