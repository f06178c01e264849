"""Derive keys from a secret: HKDF (RFC 5869) with SHA-256, one block long.

Keys for different purposes reveal nothing about each other or about the secret.
"""

from __future__ import annotations

import hashlib
import hmac


def derived_key(secret: str, purpose: bytes) -> bytes:
    """Return 32 bytes for ``purpose``, which names the use and its version."""
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret.encode(), "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")
