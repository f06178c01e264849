"""Decide what a BLOB cache keeps and what it may delete. Pure: the cache carries the decisions out.

Each BLOB is counted from its first retrieval on, with one reference per holder: the name of a task that uses it
(BLOB-9). While the BLOB is being fetched or verified, a claim keeps it as a reference does. The owner's directory
counts as many references as all its files together, so it is deleted as a whole only when none of its files is used
(BLOB-11).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.staging import Staging

_Place = tuple[JobId, BlobKey]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One retrieval in progress. Ends with ``CacheMachine.hold`` or ``CacheMachine.give_up``."""

    number: int
    owner: JobId
    key: BlobKey


class CacheDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """Files that clean-up must delete for one owner. ``whole``: the owner's directory with everything in it."""

    owner: JobId
    keys: tuple[BlobKey, ...]
    whole: bool


@dataclass
class _Entry:
    holders: set[str] = field(default_factory=set)
    claims: dict[int, str | None] = field(default_factory=dict)  # number -> holder, None if released since
    stored: bool = False  # a file with this BLOB may exist

    @property
    def is_used(self) -> bool:
        return bool(self.holders or self.claims)


class CacheMachine:
    """The references of one cache and its staged clean-up.

    A BLOB is staged as soon as it has no reference left.
    """

    def __init__(self) -> None:
        self._owners: dict[JobId, dict[BlobKey, _Entry]] = {}
        self._staging: Staging[_Place] = Staging()
        self._claims = 0

    def found(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """Add files that an earlier process left. They are kept, but staged until a task uses them."""
        for key in keys:
            entry = self._entry(owner, key)
            entry.stored = True
            self._settle(owner, key, entry)

    def claim(self, owner: JobId, key: BlobKey, holder: str | None) -> Claim:
        """Note that the retrieval of a BLOB begins: for ``holder``, or for the transfer itself if ``holder`` is None.

        The claim keeps the BLOB from now on, even if it was due for deletion.
        """
        self._claims += 1
        self._entry(owner, key).claims[self._claims] = holder
        self._staging.unstage((owner, key))
        return Claim(number=self._claims, owner=owner, key=key)

    def hold(self, claim: Claim) -> None:
        """End a successful retrieval: the claim becomes the holder's reference.

        If the holder has released it in the meantime, no reference remains.
        """
        entry = self._owners[claim.owner][claim.key]
        holder = entry.claims.pop(claim.number)
        entry.stored = True
        if holder is not None:
            entry.holders.add(holder)
        self._settle(claim.owner, claim.key, entry)

    def give_up(self, claim: Claim) -> None:
        """End a retrieval that failed or whose task was cancelled."""
        entry = self._owners[claim.owner][claim.key]
        del entry.claims[claim.number]
        self._settle(claim.owner, claim.key, entry)

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        """End one reference. Does nothing if there is no such reference."""
        entry = self._owners.get(owner, {}).get(key)
        if entry is None:
            return
        entry.holders.discard(holder)
        entry.claims.update({number: None for number, name in entry.claims.items() if name == holder})
        self._settle(owner, key, entry)

    def release_all(self, owner: JobId, holder: str) -> None:
        """End every reference of ``holder`` to this owner's BLOBs (BLOB-13)."""
        for key in list(self._owners.get(owner, {})):
            self.release(owner, key, holder)

    def turn(self) -> list[CacheDeletion]:
        """End one retention interval: return what must be deleted now and forget it here (BLOB-10)."""
        due: dict[JobId, list[BlobKey]] = {}
        for owner, key in self._staging.turn():
            due.setdefault(owner, []).append(key)
            self._forget(owner, key)
        return [
            CacheDeletion(owner=owner, keys=tuple(keys), whole=owner not in self._owners) for owner, keys in due.items()
        ]

    def references(self, owner: JobId, key: BlobKey) -> int:
        """Return how many holders a BLOB has."""
        entry = self._owners.get(owner, {}).get(key)
        return 0 if entry is None else len(entry.holders)

    def may_be_stored(self, owner: JobId, key: BlobKey) -> bool:
        """True if the cache may have the BLOB's file, because it has fetched or found it and not deleted it since."""
        entry = self._owners.get(owner, {}).get(key)
        return entry is not None and entry.stored

    @property
    def blobs(self) -> int:
        """Number of BLOBs known here."""
        return sum(len(entries) for entries in self._owners.values())

    def _entry(self, owner: JobId, key: BlobKey) -> _Entry:
        return self._owners.setdefault(owner, {}).setdefault(key, _Entry())

    def _settle(self, owner: JobId, key: BlobKey, entry: _Entry) -> None:
        """Stage a BLOB that nothing uses; forget it if it was never stored."""
        if entry.is_used:
            return
        if entry.stored:
            self._staging.stage((owner, key))
        else:
            self._forget(owner, key)

    def _forget(self, owner: JobId, key: BlobKey) -> None:
        entries = self._owners[owner]
        del entries[key]
        if not entries:
            del self._owners[owner]
