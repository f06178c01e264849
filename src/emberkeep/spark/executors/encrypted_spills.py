"""Encrypts what PySpark's external sorts and merges spill: each frame of a file with AES-GCM, by a key in memory.

Only the process that has written such a file reads it, so the key never leaves that process and those that it forks.
An ``ExternalList`` is pickled with the content of its file. The pickle has PySpark's own form, which every process can
read.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from typing import Any

import pyspark.shuffle
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.serializers import CompressedSerializer

_shuffle: Any = pyspark.shuffle
_LENGTH = struct.Struct("!i")
_NONCE_BYTES = 12
_KEY_BITS = 128  # as Spark's own for local files


class EncryptedSerializer(CompressedSerializer):
    """Encrypts each frame after its compression. A frame that was changed raises InvalidTag."""

    # A class attribute, because PySpark makes a serializer for each file.
    _cipher = AESGCM(AESGCM.generate_key(_KEY_BITS))

    def dumps(self, obj: Any) -> bytes:
        packed: bytes = super().dumps(obj)  # type: ignore[no-untyped-call]
        return seal(packed)

    def loads(self, obj: bytes) -> Any:
        return super().loads(opened(obj))  # type: ignore[no-untyped-call]


def seal(data: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + EncryptedSerializer._cipher.encrypt(nonce, data, None)


def opened(data: bytes) -> bytes:
    return EncryptedSerializer._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None)


def encrypt_spills() -> None:
    """Make PySpark encrypt all that this process, and those forked from it, spill from now on. Idempotent."""
    if _shuffle.CompressedSerializer is EncryptedSerializer:
        return
    external = _shuffle.ExternalList
    leave, arrive = external.__getstate__, external.__setstate__

    def pickled(self: Any) -> tuple[Any, int, bytes]:
        values, count, stored = leave(self)
        return values, count, b"".join(_framed(opened(frame)) for frame in _frames(stored))

    def unpickled(self: Any, state: tuple[Any, int, bytes]) -> None:
        values, count, plain = state
        arrive(self, (values, count, b"".join(_framed(seal(frame)) for frame in _frames(plain))))

    external.__getstate__, external.__setstate__ = pickled, unpickled
    _shuffle.CompressedSerializer = EncryptedSerializer


def _frames(stored: bytes) -> Iterator[bytes]:
    stream = io.BytesIO(stored)
    while header := stream.read(_LENGTH.size):
        yield stream.read(*_LENGTH.unpack(header))


def _framed(frame: bytes) -> bytes:
    return _LENGTH.pack(len(frame)) + frame
