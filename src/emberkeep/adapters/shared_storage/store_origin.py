"""What a job store says of itself and of the storage that it was used with, so that the storage can be recognised."""

from __future__ import annotations

from dataclasses import dataclass

# A store keeps the identity of its storage, or this instead of one.
RELEASE_BEFORE = "release-before"


@dataclass(frozen=True)
class StoreOrigin:
    """``identity``: drawn when the store was made. ``storage``: identity of the storage that it was used with, ""
    before the first time. ``was_led``: by a release that kept no such records, and no storage was settled since."""

    identity: str
    storage: str
    was_led: bool


def origin_of(identity: str, kept: str) -> StoreOrigin:
    """``kept``: what the store keeps of its storage."""
    was_led = kept == RELEASE_BEFORE
    return StoreOrigin(identity=identity, storage="" if was_led else kept, was_led=was_led)


def kept_first(*, was_led: bool) -> str:
    """What a store keeps from the moment on at which its release can keep it. ``was_led``: before that moment.

    It is decided once: a later start finds a store that was led in any case, by this release perhaps, and with a
    storage that was not this store's.
    """
    return RELEASE_BEFORE if was_led else ""


def kept_after(origin: StoreOrigin, settled: str) -> str:
    """What a store keeps once its storage was looked at. ``settled``: identity of the storage, "" where it is not
    settled whose that is; then somebody has kept records there, and the storage is not the release's before."""
    return settled or origin.storage
