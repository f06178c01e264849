"""Signs what a cluster writes to ZooKeeper, and refuses what another program has written there.

Records in ZooKeeper say where the leader is and which files a job consists of. A process that follows a forged record
sends the cluster's token to a stranger, or runs a stranger's code. So each node starts with a line that has an
HMAC-SHA-256 over the node's path and its content. The path is included because a sound record in another node's place
is a forgery, too. An empty node carries no information and no signature.

The key is derived from the token, which all JobManagers and task managers have and ZooKeeper never sees.
"""

from __future__ import annotations

import enum
import hmac
import re

from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_RECORDS
from emberkeep.base.derived_key import derived_key
from emberkeep.base.errors import Unavailable

_LABEL = b"emberkeep: records in ZooKeeper, version 1"
_MAGIC = b"emberkeep-signed 1 "
_SEQUENCE = re.compile(r"(?<=[-~])\d{10}$")  # ZooKeeper appends it while it creates the node


class UnsignedRecords(enum.Enum):
    """What to do with records that this cluster's key has not signed. All but REFUSE are insecure."""

    REFUSE = "refuse"
    SIGN = "sign"  # trust them; the leader signs them when it takes over
    KEEP = "keep-unsigned"  # trust them and sign nothing, as release 0.1.0 does


class NotAuthentic(Unavailable):
    """Another program may have written the node. Its content is neither used nor taken for lost or damaged."""


class RecordSigner:
    """Signs the content of nodes with ``key``, and checks it. ``unsigned``: the rule for other content."""

    def __init__(self, key: bytes, unsigned: UnsignedRecords = UnsignedRecords.REFUSE) -> None:
        self._key = key
        self.unsigned = unsigned

    @property
    def signs(self) -> bool:
        return self.unsigned is not UnsignedRecords.KEEP

    def refuse_unsigned(self) -> None:
        """From now on, trust only what this cluster's key has signed."""
        self.unsigned = UnsignedRecords.REFUSE

    def signed(self, path: str, content: bytes) -> bytes:
        """Return the bytes to write to the node at ``path``."""
        if not content or not self.signs:
            return content
        return _MAGIC + self._signature(path, content) + b"\n" + content

    def checked(self, path: str, stored: bytes) -> bytes:
        """Return the content of the node at ``path``. Raises NotAuthentic."""
        content = content_of(stored)
        if not stored or self.unsigned is UnsignedRecords.SIGN or self._is_signed(path, stored, content):
            return content
        if content != stored:
            raise NotAuthentic(
                f"ZooKeeper's node {path} is not signed with this cluster's key",
                hint="either another program has written it: restrict who may write there; or not all processes have "
                "the same security.token-file. If the token was changed: see docs/high-availability.md about "
                f"{ZOOKEEPER_RECORDS.key}",
            )
        if not self.signs:
            return content
        raise NotAuthentic(
            f"ZooKeeper's node {path} is not signed",
            hint="either another program has written it: restrict who may write there; or a release without signatures "
            f"has: see docs/upgrades.md about {ZOOKEEPER_RECORDS.key}",
        )

    def _is_signed(self, path: str, stored: bytes, content: bytes) -> bool:
        return hmac.compare_digest(stored, _MAGIC + self._signature(path, content) + b"\n" + content)

    def _signature(self, path: str, content: bytes) -> bytes:
        place = _SEQUENCE.sub("", path).encode()
        return hmac.digest(self._key, b"%d %b%b" % (len(place), place, content), "sha256").hex().encode()


def content_of(stored: bytes) -> bytes:
    """Return a node's content without its signature, which is not checked."""
    if not stored.startswith(_MAGIC):
        return stored
    return stored.partition(b"\n")[2]


def signing_key(token: str) -> bytes:
    """Return the key that is derived from the cluster's token."""
    return derived_key(token, _LABEL)
