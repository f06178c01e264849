"""A driver that keeps its checkpoint through a state gateway: the storage's disk, and the node's disk with the copies.

The driver runs on the gateway's node. If the gateway's process dies, the driver repeats its request. If the node loses
its power, a new attempt goes on from the checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Absent
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import DRIVER, Caller, StatePath
from emberkeep.taskmanager.state_gateway.gateway import StateGateway
from tests.support.contracts.durable_state import read
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.pairs.pair import Pair, Roots
from tests.support.state_faults import TemporarySpool

JOB, SLOT = JobId("1" * 32), AllocationId("a" * 32)
STORAGE, NODE = 0, 1
_UUID = "0815abcd-1234-5678-9abc-0123456789ab"
_BATCHES = 3


class DriverAndGateway:
    """The first disk is the storage's, the second one the node's."""

    def __init__(self) -> None:
        self._attempt = 1
        self._storage_lost = False
        self._done = 0  # entries whose rename was acknowledged
        self._renaming: int | None = None  # the entry of the rename that has no answer yet, of this attempt

    def go_on(self, roots: Roots, disks: tuple[FollowedFiles, FollowedFiles], lost: frozenset[int]) -> None:
        self._storage_lost |= STORAGE in lost
        if NODE in lost:
            self._attempt, self._renaming = self._attempt + 1, None
        place = roots[STORAGE] / JOB
        copies = DiskCopies(roots[NODE] / "state")
        copies.open_copies()
        journal = FileRenameJournal(roots[NODE] / "renames", lambda: 1)
        gateway = StateGateway(
            copies,
            lambda root, _: DirectoryState(Path(root)),
            lambda _: str(place),
            journal,
            TemporarySpool,
            SystemClock(),
            quota=10**9,
        )
        gateway.held = frozenset({(JOB, SLOT)})
        try:
            self._write_all(gateway, place)
        finally:
            gateway.close()
            journal.close()

    def _write_all(self, gateway: StateGateway, place: Path) -> None:
        caller = Caller(job_id=JOB, attempt=self._attempt, allocation_id=SLOT)
        gateway.admit(Caller(job_id=JOB, attempt=self._attempt, allocation_id=DRIVER))
        for number in range(self._done):
            assert _content(gateway, caller, place, _name(number)) == _data(number), f"{_name(number)} is gone"
        for number in range(self._done, _BATCHES):
            temporary = _temporary(number)
            if self._renaming != number:
                if _exists(gateway, caller, place, _name(number)):
                    # An earlier attempt has renamed it, and did not get to know.
                    self._done = number + 1
                    continue
                self._write_one(gateway, caller, place, number)
            source, target = StatePath(root=str(place), name=temporary), StatePath(root=str(place), name=_name(number))
            try:
                gateway.rename(caller, source, target, overwrite=False)
            except Absent:  # the storage has lost the temporary file, which nothing has promised
                assert self._storage_lost
                self._renaming = None
                self._write_one(gateway, caller, place, number)
                gateway.rename(caller, source, target, overwrite=False)
            self._renaming, self._done = None, number + 1
            assert _content(gateway, caller, place, _name(number)) == _data(number)

    def _write_one(self, gateway: StateGateway, caller: Caller, place: Path, number: int) -> None:
        incoming = gateway.receive(caller, StatePath(root=str(place), name=_temporary(number)), overwrite=True)
        try:
            incoming.write(_data(number))
            incoming.commit()
        finally:
            incoming.abandon()
        self._renaming = number

    def check_end(self, roots: Roots) -> None:
        store = DirectoryState(roots[STORAGE] / JOB)
        for number in range(_BATCHES):
            assert read(store, _name(number)) == _data(number)


def _name(number: int) -> str:
    return f"state/0/0/{number}.delta"


def _temporary(number: int) -> str:
    return f"state/0/0/.{number}.{_UUID}.tmp"


def _data(number: int) -> bytes:
    return str(number).encode() * 1000


def _exists(gateway: StateGateway, caller: Caller, place: Path, name: str) -> bool:
    try:
        gateway.status(caller, StatePath(root=str(place), name=name))
    except Absent:
        return False
    return True


def _content(gateway: StateGateway, caller: Caller, place: Path, name: str) -> bytes:
    opened = gateway.open_file(caller, StatePath(root=str(place), name=name), 0, None)
    return b"".join(opened.pieces)


PAIR = Pair("driver and gateway", DriverAndGateway)
