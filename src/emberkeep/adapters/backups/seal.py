"""Proves who made a backup: an HMAC-SHA-256 over the manifest, with a key that is derived from the cluster's token.

The manifest has the digest of every member, so the seal covers all of them. Whoever restores a backup runs the code of
the jobs in it. If the keys are part of the backup, the seal proves only that nothing was changed by accident.
"""

from __future__ import annotations

import hmac

from emberkeep.base.derived_key import derived_key

_LABEL = b"emberkeep: backups, version 1"


def seal_of(manifest: bytes, token: str) -> bytes:
    """Return the content of the seal's file."""
    return hmac.digest(derived_key(token, _LABEL), manifest, "sha256").hex().encode() + b"\n"


def is_sealed(manifest: bytes, seal: bytes, token: str) -> bool:
    """True if the manifest was sealed with this token."""
    return hmac.compare_digest(seal_of(manifest, token), seal)
