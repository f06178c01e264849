"""The signature of a webhook: the receiver computes it from what it received, and compares.

The time is signed as well, so a receiver can refuse a request that somebody recorded and sends again.
"""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE = "X-Emberkeep-Signature"  # "sha256=" and 64 hex digits
TIMESTAMP = "X-Emberkeep-Timestamp"  # Unix seconds, part of what is signed
EVENT = "X-Emberkeep-Event"
DELIVERY = "X-Emberkeep-Delivery"  # the same in each repetition


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the value of the header SIGNATURE."""
    signed = timestamp.encode("ascii") + b"." + body
    return f"sha256={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"
