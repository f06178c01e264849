"""Damage to stored bytes that is certain: a replaced byte may be the same one."""

from __future__ import annotations


def flipped(data: bytes) -> bytes:
    """Return ``data`` with one bit of its first byte flipped.

    >>> flipped(b"xy")
    b'yy'
    """
    return bytes([data[0] ^ 1]) + data[1:]
