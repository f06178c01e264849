"""The durable steps of a state gateway: a durable store in a directory, the journal of renames, port and secret."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.state import journal as gateway_journal
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.state.names import INCOMING
from emberkeep.adapters.webhdfs.port import bind_gateway_port, remembered_port
from emberkeep.base.files.operations import SystemFiles
from emberkeep.base.ids import JobId
from emberkeep.local_state.errors import Exists
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller
from tests.support.contracts.durable_state import read
from tests.support.crashes.component import Component, KeptFile, NotDone
from tests.support.crashes.recorded import Crash, Loss, RecordedFiles
from tests.support.crashes.task_manager import every_file

GATEWAY = "gateway"
_LEFTOVER_AGE = 2 * 3600


# --- the durable store ------------------------------------------------------------------------------------------------


class DirectoryLife:
    """All that changes a durable store. ``states``: what must be visible after each step, the first being "nothing".

    ``exclusive``: whether the file system can rename without replacing.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self.states: list[dict[str, bytes]] = [{}]

    def live(self, root: Path, files: RecordedFiles) -> None:
        with self._file_system():
            states = self._live(root, files)
        self.states = states  # of a life that came to its end

    @contextlib.contextmanager
    def _file_system(self) -> Iterator[None]:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        with contextlib.ExitStack() as stack:
            if not self._exclusive:
                stack.enter_context(mock.patch.object(SystemFiles, "rename_new", refuse))
            yield

    def _live(self, root: Path, files: RecordedFiles) -> list[dict[str, bytes]]:
        store, source = DirectoryState(root), root.with_name("source")
        states: list[dict[str, bytes]] = [{}]

        def expect(changes: dict[str, bytes | None]) -> None:
            state = {**states[-1], **changes}
            states.append({name: content for name, content in state.items() if content is not None})
            files.mark("done")

        def put(name: str, content: bytes, *, overwrite: bool = False) -> None:
            source.write_bytes(content)
            store.create(name, source, overwrite=overwrite)
            expect({name: content})

        def move(old: str, new: str, *, overwrite: bool = False) -> None:
            store.rename(old, new, overwrite=overwrite)
            expect({old: None, new: states[-1][old]})

        put("offsets/0", b"zero")
        source.write_bytes(b"another")
        with pytest.raises(Exists):
            store.create("offsets/0", source, overwrite=False)
        put("offsets/0", b"replaced", overwrite=True)
        put("state/0/0/1.delta", b"one")
        put("state/0/0/.2.uuid.tmp", b"two", overwrite=True)
        move("state/0/0/.2.uuid.tmp", "state/0/0/2.delta")
        put("state/0/0/.1.uuid.tmp", b"one again", overwrite=True)
        move("state/0/0/.1.uuid.tmp", "state/0/0/1.delta", overwrite=True)
        move("state/0/0/2.delta", "offsets/2")
        store.rename("state", "moved", overwrite=False)
        expect({"state/0/0/1.delta": None, "moved/0/0/1.delta": b"one again"})
        store.delete("offsets/2", recursive=False)
        expect({"offsets/2": None})
        store.delete("moved", recursive=True)
        expect({"moved/0/0/1.delta": None})
        store.close()
        return states

    def check(self, crash: Crash) -> None:
        states = self.states
        before = states[len(crash.marks)]
        after = states[min(len(crash.marks) + 1, len(states) - 1)]
        files = {name for name in every_file(crash.directory) if not name.startswith(INCOMING)}
        store = DirectoryState(crash.directory)
        found = {name: read(store, name) for name in files}
        for name in {*found, *before, *after}:
            allowed = {before.get(name), after.get(name)}
            if name.endswith(".tmp") or name == "offsets/2":
                # A temporary name lasts from its rename on; a file that was deleted may be there again.
                allowed |= {None} | {state[name] for state in states if name in state}
            assert found.get(name) in allowed, f"{name} has {found.get(name)!r}"
        for name, content in before.items():
            # A rename that has begun: under the old name or the new one, or both.
            if content in after.values() and not name.endswith(".tmp"):
                assert content in found.values(), f"{name} is gone"
        if "offsets/0" in before:
            source = crash.directory.with_name("another-source")
            source.write_bytes(b"a second winner")
            with pytest.raises(Exists):
                store.create("offsets/0", source, overwrite=False)
        _check_swept(crash)


def _check_swept(crash: Crash) -> None:
    """What was cut off goes with the next write, once it is old enough."""
    incoming = crash.directory / INCOMING
    if not incoming.exists():
        return
    for path in incoming.rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - _LEFTOVER_AGE))
    before = every_file(crash.directory)
    store, source = DirectoryState(crash.directory), crash.directory.with_name("another-source")
    source.write_bytes(b"")
    store.create("probe", source, overwrite=True)
    store.delete("probe", recursive=False)
    store.close()
    assert not incoming.exists()
    assert every_file(crash.directory) == {name for name in before if not name.startswith(INCOMING)}


# --- the journal of renames -------------------------------------------------------------------------------------------

RENAMES = [
    Rename(
        caller=Caller(job_id=JobId("1" * 32), attempt=1, allocation_id=DRIVER),
        root="/r",
        source=f"s{number}",
        target="t",
    )
    for number in range(6)
]
_LEAST_BYTES = 400  # so that the journal is rewritten several times


class JournalLife:
    """The journal outlives its process, and invents nothing. After a loss of power it may know less, or what was void:
    whoever could ask again is gone then.
    """

    def __init__(self) -> None:
        self.states: list[set[int]] = [set()]

    def live(self, root: Path, files: RecordedFiles) -> None:
        with mock.patch.object(gateway_journal, "_LEAST", _LEAST_BYTES):
            self.states = self._live(root, files)

    def _live(self, root: Path, files: RecordedFiles) -> list[set[int]]:
        states: list[set[int]] = [set()]

        def done(what: str, known: set[int]) -> None:
            files.mark(what)
            states.append(known)

        for _ in range(2):
            journal = FileRenameJournal(root / "renames", lambda: 1)
            done("opened", states[-1])
            for number, rename in enumerate(RENAMES):
                if not journal.begin(rename):
                    raise NotDone("begin")
                done("begun", states[-1] | {number})
                if number % 3 == 0:
                    if not journal.void(rename):
                        raise NotDone("void")
                    done("void", states[-1] - {number})
            journal.close()
        return states

    def check(self, crash: Crash) -> None:
        after = FileRenameJournal(crash.directory / "renames", lambda: 1)
        known = {number for number, rename in enumerate(RENAMES) if after.knows(rename)}
        done = len(crash.marks)
        if crash.loss is Loss.CLEAN:
            assert known in self.states[done : done + 2], f"it knows {known}"
        else:
            assert known <= set().union(*self.states[: done + 2]), f"it knows {known}"
        assert after.begin(RENAMES[0])
        after.close()
        last = FileRenameJournal(crash.directory / "renames", lambda: 1)
        assert {number for number, rename in enumerate(RENAMES) if last.knows(rename)} == known | {0}
        last.close()
        assert [path.name for path in crash.directory.iterdir()] == ["renames"]


# --- small files ------------------------------------------------------------------------------------------------------


def _bound_port(path: Path) -> object:
    """The gateway's next life could not have the port of the one before."""

    async def bind() -> int:
        earlier = remembered_port(path)
        with socket.socket() as other:
            if earlier is not None:
                other.bind(("127.0.0.1", earlier))
                other.listen()
            bound = await bind_gateway_port("127.0.0.1", 0, path, patience=0.0)
        bound.close()
        return bound.port

    return asyncio.run(bind())


def _read_secret(path: Path) -> object:
    return load_or_create_token(path) if path.exists() else None


_EXCLUSIVE, _LINKS, _JOURNAL = DirectoryLife(exclusive=True), DirectoryLife(exclusive=False), JournalLife()
_PORT = KeptFile("port", [_bound_port, _bound_port], remembered_port, is_random=True)
_SECRET = KeptFile("secret", [load_or_create_token], _read_secret, is_random=True)
COMPONENTS = (
    Component("durable store in a directory", GATEWAY, _EXCLUSIVE.live, _EXCLUSIVE.check),
    Component("the same without exclusive renames", GATEWAY, _LINKS.live, _LINKS.check),
    Component("journal of renames", GATEWAY, _JOURNAL.live, _JOURNAL.check),
    Component("port", GATEWAY, _PORT.live, _PORT.check),
    Component("secret", GATEWAY, _SECRET.live, _SECRET.check),
)
