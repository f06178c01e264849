"""What a BLOB cache keeps and what it may delete. Pure: it decides, the cache carries out.

Each BLOB is counted from its first retrieval: one reference per holder, the name of a task that uses it (BLOB-9). While
it is being brought or looked through, a claim keeps it as a reference does. Its owner's directory counts as many
references as its files together, so that it is deleted as a whole only where nothing of it is used (BLOB-11).
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
    """One retrieval under way. Ends by ``CacheMachine.hold`` or ``CacheMachine.give_up``."""

    number: int
    owner: JobId
    key: BlobKey


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What clean-up is to delete of one owner. ``whole``: its directory with everything in it."""

    owner: JobId
    keys: tuple[BlobKey, ...]
    whole: bool


@dataclass
class _Entry:
    holders: set[str] = field(default_factory=set)
    claims: dict[int, str | None] = field(default_factory=dict)  # holder by number; None: released meanwhile
    stored: bool = False  # there may be a file of it

    @property
    def is_used(self) -> bool:
        return bool(self.holders or self.claims)


class CacheMachine:
    """References of one cache and its staged clean-up. What is unreferenced is staged at that moment."""

    def __init__(self) -> None:
        self._owners: dict[JobId, dict[BlobKey, _Entry]] = {}
        self._staging: Staging[_Place] = Staging()
        self._claims = 0

    def found(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """Files of an earlier life: kept, and staged until somebody uses them."""
        for key in keys:
            entry = self._entry(owner, key)
            entry.stored = True
            self._settle(owner, key, entry)

    def claim(self, owner: JobId, key: BlobKey, holder: str | None) -> Claim:
        """``holder`` (None: the transfer itself) begins to retrieve a BLOB. It is kept from now on, also where it was
        to be deleted next."""
        self._claims += 1
        self._entry(owner, key).claims[self._claims] = holder
        self._staging.unstage((owner, key))
        return Claim(number=self._claims, owner=owner, key=key)

    def hold(self, claim: Claim) -> None:
        """The BLOB is there: the claim becomes its holder's reference, unless the holder has released it meanwhile."""
        entry = self._owners[claim.owner][claim.key]
        holder = entry.claims.pop(claim.number)
        entry.stored = True
        if holder is not None:
            entry.holders.add(holder)
        self._settle(claim.owner, claim.key, entry)

    def give_up(self, claim: Claim) -> None:
        """The retrieval failed or its task was cancelled."""
        entry = self._owners[claim.owner][claim.key]
        del entry.claims[claim.number]
        self._settle(claim.owner, claim.key, entry)

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        """End one reference; one that is not there is fine."""
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

    def turn(self) -> list[Deletion]:
        """One retention interval is over: what is to be deleted now, and is forgotten here (BLOB-10)."""
        due: dict[JobId, list[BlobKey]] = {}
        for owner, key in self._staging.turn():
            due.setdefault(owner, []).append(key)
            self._forget(owner, key)
        return [Deletion(owner=owner, keys=tuple(keys), whole=owner not in self._owners) for owner, keys in due.items()]

    def references(self, owner: JobId, key: BlobKey) -> int:
        """How many holders a BLOB has."""
        entry = self._owners.get(owner, {}).get(key)
        return 0 if entry is None else len(entry.holders)

    def may_be_stored(self, owner: JobId, key: BlobKey) -> bool:
        """Whether there may be a file of it: it came, or was found, and was not deleted since."""
        entry = self._owners.get(owner, {}).get(key)
        return entry is not None and entry.stored

    @property
    def blobs(self) -> int:
        """How many BLOBs are known here."""
        return sum(len(entries) for entries in self._owners.values())

    def directory_references(self, owner: JobId) -> int:
        """How often the owner's directory is used: by each holder of each of its files."""
        return sum(len(entry.holders) for entry in self._owners.get(owner, {}).values())

    def _entry(self, owner: JobId, key: BlobKey) -> _Entry:
        return self._owners.setdefault(owner, {}).setdefault(key, _Entry())

    def _settle(self, owner: JobId, key: BlobKey, entry: _Entry) -> None:
        """Stage what nobody uses; forget what never came."""
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
