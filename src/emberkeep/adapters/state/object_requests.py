"""Requests for single objects of a store. They translate its errors, and find out what happened if a reply was lost."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from emberkeep.adapters.object_store.clients import ObjectLocation, open_object_store
from emberkeep.adapters.object_store.errors import object_store_error
from emberkeep.adapters.state.root import StateRoot
from emberkeep.adapters.state.source import StagedSource
from emberkeep.base.errors import Absent, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.local_state.model import FileKind, FileStatus

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

PART_BYTES = 8 * 1024**2
"""Bytes of one request. Larger files are sent in parallel parts, and copied by the store itself."""
_PARTS_AT_ONCE = 3
_PIECE_BYTES = 256 * 1024
_DELETED_AT_ONCE = 1000
_WRITER = "emberkeep-writer"  # attribute of an object: the call that created it


class ObjectRequests:
    """Requests to one object store. Names are relative to the location's prefix."""

    def __init__(self, location: ObjectLocation) -> None:
        """Open the store, without contacting it. Raises Fatal."""
        self.root = StateRoot(str(location))
        with self.errors("use", ""):
            self.store = open_object_store(location)

    def find(self, name: str) -> FileStatus | None:
        """Return the status of a file; None if the file does not exist."""
        with contextlib.suppress(Absent), self.errors("look at", name):
            return file_status(name, obstore.head(self.store, name))
        return None

    def is_directory(self, name: str) -> bool:
        with self.errors("look at", name):
            return any(obstore.list(self.store, name or None, chunk_size=1))

    def get(self, name: str, offset: int, length: int | None) -> GetResult:
        """Begin to read ``length`` bytes from ``offset``, or to the end if ``length`` is None. Reads at least one byte.

        Raises Absent; Fatal if the range begins at or beyond the end.
        """
        with self.errors("read", name):
            if length is not None:
                return obstore.get(self.store, name, options={"range": (offset, offset + max(1, length))})
            if offset:
                return obstore.get(self.store, name, options={"range": {"offset": offset}})
            return obstore.get(self.store, name)

    def get_small(self, name: str) -> bytes | None:
        """Return the content of an object, None if it has more than PART_BYTES. Raises Absent."""
        with self.errors("read", name):
            found = obstore.get(self.store, name)
            return bytes(found.bytes()) if found.meta["size"] <= PART_BYTES else None

    def pieces(self, found: GetResult, name: str) -> Iterator[bytes]:
        """Yield all bytes that were asked for. Raises RetryLater."""
        begin, end = found.range
        with self.errors("read", name):
            for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                begin += len(piece)
                yield bytes(piece)
        if begin != end:
            raise RetryLater(f"{self.root.at(name)} ended {end - begin} bytes early")

    def put(self, name: str, data: bytes, *, overwrite: bool, writer: str = "") -> FileStatus:
        """Write a small object. Without ``overwrite``, raises Exists unless ``writer`` has created the object.

        ``writer``: what no other call but a repeated one is called; "" for a new one.
        """
        if overwrite:
            with self.changing(name):
                result = obstore.put(self.store, name, data, use_multipart=False)
            return new_status(name, len(data), result["e_tag"])
        writer = writer or secrets.token_hex(12)
        try:
            with self.changing(name):
                result = obstore.put(
                    self.store, name, data, mode="create", attributes={_WRITER: writer}, use_multipart=False
                )
            return new_status(name, len(data), result["e_tag"])
        except (AlreadyExistsError, UnknownOutcome) as error:
            # The reply to this request may be lost, or the reply to its first try, which obstore repeats.
            found = self._written_by(name)
            if found is None and isinstance(error, UnknownOutcome):
                reason = error.__cause__ if isinstance(error.__cause__, EmberkeepError) else error
                raise RetryLater(f"{self.root.at(name)} was not written: {reason.message}") from error
            if found is None or found[0] != writer:
                raise self.root.exists(name) from None
            return found[1]

    def _written_by(self, name: str) -> tuple[str, FileStatus] | None:
        """Return the tag of the call that created an object, and the object's status; None if there is no object.

        Raises UnknownOutcome if the store does not answer.
        """
        try:
            with self.errors("look at", name):
                found = obstore.get(self.store, name)
                return str(found.attributes.get(_WRITER)), file_status(name, found.meta)
        except Absent:
            return None
        except RetryLater as error:
            raise UnknownOutcome(f"{self.root.at(name)} may have been written, or not: {error.message}") from error

    def put_parts(self, name: str, source: StagedSource, size: int) -> FileStatus:
        """Write a large object, in parts. Raises Fatal if ``source`` cannot be read: the store drops the parts then."""
        parts = iter(lambda: source.read(PART_BYTES), b"")
        with self.changing(name):
            result = obstore.put(
                self.store, name, parts, chunk_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE, use_multipart=True
            )
        return new_status(name, size, result["e_tag"])

    def copy(self, source: str, target: str, *, overwrite: bool, own: bool = False) -> FileStatus:
        """Copy an object within the store. Raises Absent, Exists, UnknownOutcome.

        ``own``: only this call and its repetitions copy this source. So without ``overwrite``, an existing target that
        has the source's bytes counts as the result of an earlier try.
        """
        try:
            with self.changing(target):
                obstore.copy(self.store, source, target, overwrite=overwrite)
        except AlreadyExistsError:
            copied = self._copied(source, target) if own else None
            if copied is None:
                raise self.root.exists(target) from None
            return copied
        except (Absent, UnknownOutcome):
            # The reply to this request may be lost, or the reply to its first try, which obstore repeats. A store may
            # also say of a repeated copy in parts that there is no such copy.
            copied = self._copied(source, target) if own and not overwrite else None
            if copied is None:
                raise
            return copied
        status = self.find(target)
        if status is None:
            raise UnknownOutcome(f"{self.root.at(target)} was written and then deleted")
        return status

    def _copied(self, source: str, target: str) -> FileStatus | None:
        """Return the target's status if it has the bytes of the source and is no older, else None.

        A copy cannot be tagged as a small object can, so compare the bytes. Raises UnknownOutcome if the store does not
        answer.
        """
        try:
            ours, theirs = self.find(source), self.find(target)
            if ours is None or theirs is None or ours.length != theirs.length or theirs.modified_ms < ours.modified_ms:
                return None
            return theirs if self._digest(source) == self._digest(target) else None
        except Absent:
            return None
        except RetryLater as error:
            raise UnknownOutcome(f"{self.root.at(target)} may have been written, or not: {error.message}") from error

    def _digest(self, name: str) -> bytes:
        digest = hashlib.sha256()
        for piece in self.pieces(self.get(name, 0, None), name):
            digest.update(piece)
        return digest.digest()

    def delete(self, names: list[str]) -> None:
        for begin in range(0, len(names), _DELETED_AT_ONCE):
            batch = names[begin : begin + _DELETED_AT_ONCE]
            try:
                with self.changing(batch[0]):
                    obstore.delete(self.store, batch)
            except Absent:
                # Some stores stop at the first object that does not exist.
                for name in batch:
                    with contextlib.suppress(Absent), self.changing(name):
                        obstore.delete(self.store, name)

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Wrap a request that changes an object: RetryLater becomes UnknownOutcome, as the store may have done it."""
        try:
            with self.errors("write", name):
                yield
        except RetryLater as error:
            raise UnknownOutcome(
                f"{self.root.at(name)} may have changed, or not: {error.message}",
                hint="check its state before you try again",
            ) from error

    @contextlib.contextmanager
    def errors(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except (EmberkeepError, AlreadyExistsError):
            raise
        except (BaseError, OSError, ValueError) as error:
            raise object_store_error(f"cannot {verb} {self.root.at(name)}", error) from None


def directory_status(name: str) -> FileStatus:
    return FileStatus(name=name, kind=FileKind.DIRECTORY, length=0, modified_ms=0, generation="")


def file_status(name: str, meta: ObjectMeta) -> FileStatus:
    # Whole seconds: one store sends milliseconds in some of its replies and not in others.
    seconds = int(meta["last_modified"].timestamp())
    return FileStatus(
        name=name,
        kind=FileKind.FILE,
        length=meta["size"],
        modified_ms=seconds * 1000,
        generation=_generation(meta["e_tag"]),
    )


def new_status(name: str, size: int, tag: str | None) -> FileStatus:
    return FileStatus(
        name=name,
        kind=FileKind.FILE,
        length=size,
        modified_ms=int(time.time()) * 1000,
        generation=_generation(tag),
    )


def _generation(tag: str | None) -> str:
    """Return the entity tag as a generation.

    For a store without tags, return a random generation that never recurs, so that no local copy counts as current.
    """
    return tag or secrets.token_hex(12)
