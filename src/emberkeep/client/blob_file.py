"""A BLOB that is downloaded to a user's file. The file gets its name once it is complete and its SHA-256 is correct."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from emberkeep.base.errors import Fatal
from emberkeep.blobs.model import BlobKey


class BlobFile:
    """A download. ``receive`` may be called again after a broken transfer; always call ``clean_up`` at the end."""

    def __init__(self, destination: Path, key: BlobKey) -> None:
        self._destination = destination
        self._key = key
        # Without the destination's name: with more than that, a name may become too long for the file system.
        self._temporary = destination.parent / f".emberkeep-{secrets.token_hex(8)}"
        self._digest = hashlib.sha256()
        self._size = 0

    async def receive(self, chunks: AsyncIterator[bytes]) -> None:
        """Write all chunks, from the start of the file. Raises Fatal (disk), and what ``chunks`` raises."""
        self._digest, self._size = hashlib.sha256(), 0
        with self._open() as file:
            async for chunk in chunks:
                await asyncio.to_thread(self._write, file, chunk)

    async def finish(self) -> int:
        """Verify the content and rename the file to its destination. Return its size in bytes. Raises Fatal."""
        actual = self._digest.hexdigest()
        if actual != self._key.sha256:
            raise Fatal(f"what arrived for BLOB {self._key} is damaged: its SHA-256 is {actual}", hint="try again")
        try:
            await asyncio.to_thread(self._temporary.replace, self._destination)
        except OSError as error:
            raise self._failure(error) from error
        return self._size

    def clean_up(self) -> None:
        """Remove the temporary file, if there is one."""
        with contextlib.suppress(OSError):  # where it could not be made, it cannot be looked for either
            self._temporary.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        """Open the temporary file. Raises Fatal.

        What is no regular file, such as a directory or /dev/null, is refused: it would be replaced, or only at the end
        turn out not to be replaceable.
        """
        try:
            if self._destination.exists() and not self._destination.is_file():
                raise FileExistsError(errno.EEXIST, "it is not a regular file")
            descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failure(error) from error
        return os.fdopen(descriptor, "wb", buffering=0)

    def _write(self, file: BinaryIO, chunk: bytes) -> None:
        left = memoryview(chunk)
        try:
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise self._failure(error) from error
        self._digest.update(chunk)
        self._size += len(chunk)

    def _failure(self, error: OSError) -> Fatal:
        return Fatal(f"cannot write {self._destination}: {error.strerror}", hint="name another file with --save")
