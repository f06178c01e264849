"""A durable store in a directory, used with the rights of a job's user by a process that runs as root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emberkeep.base.files.acting_user import acting_as
from emberkeep.base.processes.os_user import OsUser
from emberkeep.local_state.model import FileStatus
from emberkeep.local_state.ports import DurableState


class UserState:
    """The store ``state`` as ``user`` reaches it; implements ``local_state.ports.DurableState``.

    New files and directories belong to the user. What the user may not reach raises Fatal.
    """

    def __init__(self, state: DurableState, user: OsUser) -> None:
        self._state = state
        self._user = user

    @property
    def location(self) -> str:
        return self._state.location

    def status(self, name: str) -> FileStatus:
        with acting_as(self._user):
            return self._state.status(name)

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        with acting_as(self._user):
            return self._state.listing(name)

    def make_directory(self, name: str) -> None:
        with acting_as(self._user):
            self._state.make_directory(name)

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        with acting_as(self._user):
            return self._state.create(name, source, overwrite=overwrite)

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        with acting_as(self._user):
            return self._state.read(name, offset, length)  # the file is open now: anyone may iterate

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        with acting_as(self._user):
            return self._state.rename(source, target, overwrite=overwrite)

    def delete(self, name: str, *, recursive: bool) -> bool:
        with acting_as(self._user):
            return self._state.delete(name, recursive=recursive)

    def close(self) -> None:
        with acting_as(self._user):
            self._state.close()
