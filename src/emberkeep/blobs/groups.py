"""Groups of BLOBs that a client uploads before their job exists (requirement BLOB-6).

Clean-up stages no member of a group for deletion until all members have arrived or the client has stopped uploading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from emberkeep.base.errors import InvalidInput
from emberkeep.blobs.model import BlobContent, BlobKey

MAX_GROUP = 10_000  # BLOBs


def check_group(contents: Sequence[BlobContent], max_size: int) -> None:
    """Check an announced group. ``max_size`` is in bytes.

    Raises InvalidInput if there are too many BLOBs, one is too large, or one content has two sizes.
    """
    if len(contents) > MAX_GROUP:
        raise InvalidInput(f"{len(contents)} BLOBs are more than the {MAX_GROUP} of one group", field="blobs")
    sizes: dict[str, int] = {}
    for index, content in enumerate(contents):
        field = f"blobs[{index}].size"
        if not 0 <= content.size <= max_size:
            raise InvalidInput(f"{content.size} bytes: not from 0 to {max_size}", field=field, hint="see blob.max-size")
        if sizes.setdefault(content.sha256, content.size) != content.size:
            raise InvalidInput(f"{content.sha256} has two sizes", field=field)


class Group:
    """The announced keys of one owner, and which of these BLOBs are still missing."""

    def __init__(self, members: Iterable[BlobKey], missing: Iterable[BlobKey]) -> None:
        self.members = frozenset(members)
        self._missing = set(missing)
        self._stirred = True  # something happened since the last turn; the announcement itself counts

    @property
    def missing(self) -> AbstractSet[BlobKey]:
        return self._missing

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def arrived(self, key: BlobKey) -> None:
        """Note that a BLOB of this owner is stored. Does nothing if the BLOB is not a member."""
        if key in self.members:
            self._missing.discard(key)
            self._stirred = True

    def stir(self) -> None:
        """Note that an upload of a member is in progress, so the client is alive."""
        self._stirred = True

    def turn(self) -> bool:
        """End one interval. Return True if nothing was uploaded during the whole interval, so the client is gone."""
        quiet = not self._stirred
        self._stirred = False
        return quiet
