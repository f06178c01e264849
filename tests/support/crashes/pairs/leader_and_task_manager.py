"""A leader with its job store and BLOBs; a task manager with its record of slots, its cache and its bound files.

The order of what they write is that of a job's life: BLOBs, the job, the number of an attempt, the task manager's
fence, its copies of the BLOBs, the outcome, the result, and only then the end of the outcome.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.base.errors import Absent
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.daemons.records.bound_files import read_artefacts, write_artefacts
from emberkeep.jobs.model import Artefact, ArtefactRole, AttemptOutcome
from emberkeep.slots.table.fences import FenceRecord
from emberkeep.slots.table.record import TableRecord
from emberkeep.taskmanager.agent_record import AgentRecord, OutcomeRecord
from tests.support.contracts.job_store import job, result_of
from tests.support.crashes.blobs import CONTENTS, KEYS, pieces
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.leader import DATABASE
from tests.support.crashes.pairs.pair import Pair, Roots

LEADER, TASK_MANAGER = 0, 1
_JOBS = {1: "a", 2: "b"}  # and the BLOB that each needs
_IDS = {number: job(number).job_id for number in _JOBS}


class LeaderAndTaskManager:
    """The first disk is the leader's, the second one the task manager's."""

    def __init__(self) -> None:
        self._accepted: set[int] = set()
        self._started: set[tuple[int, int]] = set()  # jobs and attempts that a task manager has run
        self._ended: set[int] = set()  # clients have seen it

    def go_on(self, roots: Roots, disks: tuple[FollowedFiles, FollowedFiles], lost: frozenset[int]) -> None:
        disks[LEADER].follow(roots[LEADER] / f"{DATABASE}-wal", roots[LEADER] / DATABASE)
        database = JobDatabase(roots[LEADER] / DATABASE, roots[LEADER] / "graphs", 1)
        try:
            disks[LEADER].absorb()
            asyncio.run(self._live(database, roots, disks[LEADER]))
        finally:
            database.close()

    async def _live(self, database: JobDatabase, roots: Roots, disk: FollowedFiles) -> None:
        blobs, cache = BlobFiles(roots[LEADER] / "blobs"), BlobFiles(roots[TASK_MANAGER] / "cache")
        await blobs.open_store()
        await cache.open_store()
        node = _Node(roots[TASK_MANAGER], cache)
        stored = {entry.job_id: entry for entry in database.recover()}
        results = {result.job_id for result in database.results()}
        for number in self._accepted:
            assert {_IDS[number]} & {*stored, *results}, f"job {number} was accepted and is gone"
        assert {_IDS[number] for number in self._ended} <= results, "an end that was shown is gone"
        for number, name in _JOBS.items():
            if _IDS[number] in results:
                self._accepted.add(number)
                self._ended.add(number)
                node.forget(number)
                continue
            if _IDS[number] not in stored:
                await blobs.receive(_IDS[number], KEYS[name], pieces(CONTENTS[name]), max_size=10**6)
                database.create(job(number))
                disk.absorb()
            self._accepted.add(number)
            attempt = stored[_IDS[number]].attempt if _IDS[number] in stored else 0
            if node.outcome(number) != attempt or not attempt:
                attempt += 1
                assert node.fence(number) < attempt, "the task manager knows a newer attempt than the leader"
                database.record_attempt(_IDS[number], attempt, None)
                disk.absorb()
                await self._run(node, blobs, number, attempt)
            database.record_result(result_of(job(number)))
            disk.absorb()
            self._ended.add(number)
            node.forget(number)

    async def _run(self, node: _Node, blobs: BlobFiles, number: int, attempt: int) -> None:
        node.begin(number, attempt)
        assert (number, attempt) not in self._started, f"attempt {attempt} of job {number} runs twice"
        self._started.add((number, attempt))
        await node.stage(blobs, number)
        node.end(number, attempt)

    def check_end(self, roots: Roots) -> None:
        assert self._accepted == self._ended == set(_JOBS)


class _Node:
    """The task manager."""

    def __init__(self, root: Path, cache: BlobFiles) -> None:
        self._root = root
        self._cache = cache
        self._file = SlotsFile(root / "slots.record")
        try:
            self._record = self._file.load()
        except Absent:
            self._record = AgentRecord(instance=InstanceId("life"), table=TableRecord(epoch=1))

    def fence(self, number: int) -> int:
        fences = self._record.table.fences
        return max((each.highest for each in fences if each.job_id == _IDS[number]), default=0)

    def outcome(self, number: int) -> int:
        return max((each.attempt for each in self._record.outcomes if each.job_id == _IDS[number]), default=0)

    def begin(self, number: int, attempt: int) -> None:
        fences = [each for each in self._record.table.fences if each.job_id != _IDS[number]]
        fence = FenceRecord(job_id=_IDS[number], highest=attempt, over=0)
        self._store(fences=(*fences, fence), outcomes=self._record.outcomes)

    def end(self, number: int, attempt: int) -> None:
        outcome = AttemptOutcome(exit_code=0, kind=None, message="")
        ended = OutcomeRecord(job_id=_IDS[number], attempt=attempt, outcome=outcome)
        self._store(fences=self._record.table.fences, outcomes=(*self._record.outcomes, ended))

    def forget(self, number: int) -> None:
        outcomes = tuple(each for each in self._record.outcomes if each.job_id != _IDS[number])
        if outcomes != self._record.outcomes:
            self._store(fences=self._record.table.fences, outcomes=outcomes)

    def _store(self, *, fences: tuple[FenceRecord, ...], outcomes: tuple[OutcomeRecord, ...]) -> None:
        table = msgspec.structs.replace(self._record.table, fences=fences)
        record = msgspec.structs.replace(self._record, table=table, outcomes=outcomes)
        self._file.store(record)
        self._record = record

    async def stage(self, blobs: BlobFiles, number: int) -> None:
        """Copy the job's BLOB and bind it, then look what its driver would find."""
        job_id, name = _IDS[number], _JOBS[number]
        content = (await blobs.path(job_id, KEYS[name])).read_bytes()
        assert content == CONTENTS[name], "the leader gives another BLOB than the one that was uploaded"
        await self._cache.receive(job_id, KEYS[name], pieces(content), max_size=10**6)
        bound = Artefact(role=ArtefactRole.PY_FILE, name=f"{name}.py", sha256=KEYS[name].sha256, size=len(content))
        write_artefacts(self._root / f"{job_id}.record", (bound,))
        for other in _JOBS:
            await self._check_bound(_IDS[other])

    async def _check_bound(self, job_id: JobId) -> None:
        try:
            (artefact,) = read_artefacts(self._root / f"{job_id}.record")
        except Absent:
            return
        name = artefact.name.removesuffix(".py")
        found = (await self._cache.path(job_id, KEYS[name])).read_bytes()
        assert found == CONTENTS[name], "a file that is bound is another one"


PAIR = Pair("leader and task manager", LeaderAndTaskManager)
