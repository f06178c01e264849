"""What a task manager keeps in its working directory, and the death of process or machine after each single step.

Each file holds the old value or the new one, or nothing, which its reader knows what to do with; and it can be written
again. The table of slots is tested by test_agent_files.py in tests/unit/daemons/records, local copies by
test_state_crashes.py.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.processes.start import (
    ProcessRecord,
    read_process_record,
    remove_record,
    write_process_record,
)
from emberkeep.adapters.state import journal as gateway_journal
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.webhdfs.port import bind_gateway_port, remembered_port
from emberkeep.base.errors import Absent
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.records.agent_files import AgentLife, read_agent_life, write_agent_life
from emberkeep.daemons.records.bound_files import read_artefacts, write_artefacts
from emberkeep.jobs.model import Artefact, ArtefactRole
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller
from tests.support.crash_files import Loss, RecordedFiles

ValueT = TypeVar("ValueT")
Write = Callable[[Path, FileOps], object]  # returns what the file holds from then on; None: it is gone


@dataclass(frozen=True)
class Kept:
    """A file of the working directory. ``read``: what it holds, None where it counts for nothing."""

    writes: Sequence[Write]
    read: Callable[[Path], object]


def writing(write: Callable[[Path, ValueT, FileOps], None], value: ValueT) -> Write:
    def step(path: Path, files: FileOps) -> object:
        write(path, value, files)
        return value

    return step


def kept_port(path: Path, files: FileOps) -> object:
    """The gateway's next life could not have the port of the one before."""

    async def bind() -> int:
        earlier = remembered_port(path)
        with socket.socket() as other:
            if earlier is not None:
                other.bind(("127.0.0.1", earlier))
                other.listen()
            bound = await bind_gateway_port("127.0.0.1", 0, path, patience=0.0, files=files)
        bound.close()
        return bound.port

    return asyncio.run(bind())


def removed(path: Path, files: FileOps) -> None:
    remove_record(path, files)


def process_record(path: Path) -> ProcessRecord | None:
    try:
        return read_process_record(path)
    except Absent:
        return None


def artefacts(path: Path) -> tuple[Artefact, ...] | None:
    try:
        return read_artefacts(path)
    except Absent:
        return None


def token(path: Path) -> str | None:
    return load_or_create_token(path) if path.exists() else None


LIVES = [AgentLife(instance=InstanceId(name), process=own_identity(), port=1) for name in ("one", "another one")]
INTENT = ProcessRecord(name="executor", identity=None)
ARTEFACTS = tuple(
    Artefact(role=ArtefactRole.PY_FILE, name=name, sha256=digit * 64, size=1)
    for name, digit in (("a.py", "a"), ("b.py", "b"))
)
FILES = {
    "agent.record": Kept([writing(write_agent_life, life) for life in LIVES], read_agent_life),
    "gateway/port": Kept([kept_port, kept_port], remembered_port),
    "gateway/secret": Kept([load_or_create_token], token),
    "processes/p@0.process": Kept(
        [
            writing(write_process_record, INTENT),
            writing(write_process_record, msgspec.structs.replace(INTENT, identity=own_identity())),
            removed,
        ],
        process_record,
    ),
    "processes/p@0/artefacts.record": Kept(
        [writing(write_artefacts, ARTEFACTS[:1]), writing(write_artefacts, ARTEFACTS)], artefacts
    ),
}


@pytest.mark.req("LOC-8")
@pytest.mark.req("LOC-2")
@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_the_old_value_or_the_new_one(tmp_path: Path, name: str) -> None:
    kept = FILES[name]
    path = tmp_path / "disk" / name
    path.parent.mkdir(parents=True)
    files = RecordedFiles(path.parent)
    values: list[object] = [None]
    for write in kept.writes:
        values.append(write(path, files))
        files.mark("done")
    assert kept.read(path) == values[-1]
    seen = set()
    for crash in files.crashes(tmp_path / "after"):
        after = crash.directory / path.name
        at = len(crash.marks)
        found = kept.read(after)
        assert found in values[at : at + 2], crash
        seen.add((crash.loss, values.index(found)))
        again = kept.writes[0](after, SYSTEM_FILES)
        assert kept.read(after) == again, crash
    assert seen == {(loss, number) for loss in Loss for number in range(len(set(map(str, values))))}


@pytest.mark.req("LOC-7")
def test_the_journal_of_renames_outlives_its_process_and_invents_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power it may know less, or what was void: whoever could ask again is gone then."""
    monkeypatch.setattr(gateway_journal, "_LEAST", 400)
    (disk := tmp_path / "disk").mkdir()
    files = RecordedFiles(disk)
    renames = [
        Rename(
            caller=Caller(job_id=JobId("1" * 32), attempt=1, allocation_id=DRIVER),
            root="/r",
            source=f"s{number}",
            target="t",
        )
        for number in range(6)
    ]
    states: list[set[int]] = [set()]
    for _ in range(2):
        journal = FileRenameJournal(disk / "renames", lambda: 1, files)
        files.mark("opened")
        states.append(states[-1])
        for number, rename in enumerate(renames):
            assert journal.begin(rename)
            files.mark("begun")
            states.append(states[-1] | {number})
            if number % 3 == 0:
                assert journal.void(rename)
                files.mark("void")
                states.append(states[-1] - {number})
        journal.close()
    seen = set()
    for crash in files.crashes(tmp_path / "after"):
        after = FileRenameJournal(crash.directory / "renames", lambda: 1)
        known = {number for number, rename in enumerate(renames) if after.knows(rename)}
        at = len(crash.marks)
        if crash.loss is Loss.CLEAN:
            assert known in states[at : at + 2], crash
        else:
            assert known <= set().union(*states[: at + 2]), crash
        seen.add((crash.loss, bool(known)))
        assert after.begin(renames[0])
        after.close()
        last = FileRenameJournal(crash.directory / "renames", lambda: 1)
        assert {number for number, rename in enumerate(renames) if last.knows(rename)} == known | {0}
        last.close()
        assert [path.name for path in crash.directory.iterdir()] == ["renames"], crash
    assert seen == {(loss, some) for loss in Loss for some in (False, True)}
