"""The sink's commit log: numbered entries, each with the whole state, each created only if its number is free.

A writer must know the newest entry to append the next one, and each new attempt begins by appending an entry. So a
writer that finds its next number taken has been superseded.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from emberkeep.api.file_sink.errors import OutputUnavailable, SinkFenced
from emberkeep.api.file_sink.model import SinkState
from emberkeep.api.file_sink.ports import SinkFiles
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater
from emberkeep.base.files.durable import decode_record, encode_record

_KIND, _VERSION = "rolling-file-sink", 1
_SUFFIX = ".record"
_KEPT, _TOO_MANY = 20, 60  # entries


class CommitLog:
    """One writer's view of the log in ``directory``."""

    def __init__(self, files: SinkFiles, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._newest = 0

    def read(self) -> SinkState | None:
        """Return the newest state; None if the log has no entries.

        Raises OutputUnavailable (entries that this writer has seen are missing), Fatal (damaged), RetryLater.
        """
        numbers = self._numbers()
        self._check_newest(numbers)
        self._newest = max(numbers, default=0)
        if not numbers:
            return None
        where = self._path(self._newest)
        data = decode_record(self._files.read(where), _KIND, _VERSION, where=where)
        try:
            return from_json(data, SinkState)
        except msgspec.DecodeError as error:
            raise Fatal(f"{where}: {error}") from error

    def append(self, state: SinkState) -> None:
        """Append an entry with this state.

        Raises SinkFenced (another writer has appended), OutputUnavailable (the previous entry is missing), RetryLater
        (outcome unknown: ``read`` before the next ``append``).
        """
        self.check()
        number = self._newest + 1
        data = encode_record(_KIND, _VERSION, msgspec.json.encode(state))
        try:
            self._files.create(self._path(number), data)
        except (Conflict, RetryLater) as error:
            self._check_whether_ours(number, data, error)
        numbers = self._numbers()
        # Old entries are deleted, so a writer that slept for a long time may find its number free again.
        if max(numbers, default=0) > number:
            self._files.delete(self._path(number))
            raise self._fenced()
        try:
            self._check_newest([each for each in numbers if each != number])
        except OutputUnavailable:
            self._files.delete(self._path(number))  # it was created in an unmounted mount point
            raise
        self._newest = number
        if len(numbers) > _TOO_MANY:
            for old in sorted(numbers)[:-_KEPT]:
                self._files.delete(self._path(old))

    def check(self) -> None:
        """Raise OutputUnavailable if the newest entry that this writer knows of is missing.

        A missing mount looks like a log without entries, and files written there are hidden once the mount is back.
        """
        try:
            numbers = self._numbers()
        except RetryLater as error:
            raise OutputUnavailable(error.message, hint="check that its file system is mounted") from error
        self._check_newest(numbers)

    def _check_newest(self, numbers: Collection[int]) -> None:
        # Another writer that has taken over may have deleted this entry. If so, there are newer ones.
        if self._newest and self._newest not in numbers and max(numbers, default=0) <= self._newest:
            raise OutputUnavailable(
                f"{self._path(self._newest)} existed before and is missing now",
                hint="check that its file system is mounted and that no older copy was restored",
            )

    def _check_whether_ours(self, number: int, data: bytes, error: Conflict | RetryLater) -> None:
        """Return normally if the entry was written although the reply was lost; otherwise raise."""
        try:
            found = self._files.read(self._path(number))
        except Absent:
            raise RetryLater(f"cannot write {self._path(number)}: {error}") from error
        if found != data:
            raise self._fenced() from error

    def _fenced(self) -> SinkFenced:
        return SinkFenced(
            f"another writer has taken over the log at {self._directory}",
            hint="a newer attempt of this job writes there, or a second sink has the same path: give each sink its own",
        )

    def _numbers(self) -> list[int]:
        found = (name.removesuffix(_SUFFIX) for name in self._files.names(self._directory) if name.endswith(_SUFFIX))
        return [int(name) for name in found if name.isdecimal()]

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:012d}{_SUFFIX}"
