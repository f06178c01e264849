"""The durable steps of a driver: savepoints in a directory, and the states of functions that it keeps for each.

The steps of a procedure are the product's own, in the order of its table. Only queries and Spark are missing: the
checkpoint is one that a query has left.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.daemons.driver.procedures import DriverProcedures
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.lifecycle.machine import PLANS, Step
from emberkeep.lifecycle.manifest import MANIFEST_NAME, decode_manifest
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.files import disk
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.await_hook import AwaitGate
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery
from emberkeep.spark.stopping.plan_gate import PlanGate
from emberkeep.spark.stopping.procedures import QueryProcedures
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage, SavepointStorages
from tests.support.crashes.component import Component, NotDone
from tests.support.crashes.recorded import Crash, RecordedFiles

DRIVER = "driver"
FIRST, SECOND = JobId("1" * 32), JobId("2" * 32)
_CHECKPOINT = {
    "metadata": b'{"id":"7b5c"}',
    "offsets/3": b'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}',
    "commits/3": b'v1\n{"nextBatchWatermarkMs":0}',
    "state/0/0/4.snapshot": b"s" * 2000,
}
_SAVED, _ROLLED_BACK, _REPEATED = (1, 3), 2, 4
_DURABLE = (Step.SNAPSHOT_STATE, Step.KEEP_STATE, Step.WRITE_SAVEPOINT)


class Attempt:
    """An attempt of a job below ``root``, whose only function has a number as its state."""

    def __init__(self, root: Path, number: int, job: JobId = FIRST, savepoint: str = "") -> None:
        self._root, self.number = root, number
        self._place = root / "jobs" / job
        notices, places = Notices(), CheckpointPlaces(lambda: None, (), Notices())
        storages = SavepointStorages(lambda _: None, root.with_name("staging"))
        states = FunctionStates(f"file:{self._place}", job, number, DirectLocations(), places, lambda: None, notices)
        self._restore = Restore(savepoint, job, storages, states, lambda: None, notices)
        known = ScriptQueries()
        known.add(_query(root.with_name("checkpoint")))
        self._queries = QueryProcedures(known, AwaitGate(notices), PlanGate(), storages, lambda: None, states=states)
        self._spec: Any = SimpleNamespace(graph=SimpleNamespace(job_id=job, name="job"), attempt=number, procedure=None)

    def begins_with(self) -> int:
        """Return the state that the function begins with; 0 if it begins with none."""
        return int(self._restore.function_states(None).get("function", 0))

    def save(self, state: int, *more: Step) -> None:
        """Make a savepoint while the function has this state, as a procedure of this driver does; then ``more``."""
        asyncio.run(self._take([step for step in PLANS[Procedure.SUSPEND] if step in _DURABLE] + [*more], state))

    def discard(self, state: int) -> None:
        asyncio.run(self._take([Step.DISCARD_SAVEPOINT], state))

    def kept(self) -> list[str]:
        """Return the names in the directory of kept states."""
        return sorted(path.name for path in self._place.glob("_emberkeep_functions/*"))

    async def _take(self, steps: list[Step], state: int) -> None:
        functions: Any = SimpleNamespace(snapshot_state=lambda _: {"function": b"%d" % state}, losses=list)
        runtime = cast(DriverRuntime, SimpleNamespace(procedures=self._queries, application_up=lambda: True))
        spec = cast(DriverSpec, self._spec)
        carried = DriverProcedures(spec, SystemClock(), lambda: runtime, lambda: functions, cast(Any, None))
        target = f"file:{self._root}/savepoints"
        request = ProcedureRequest(trigger_id=_trigger(state), procedure=Procedure.SUSPEND, target_directory=target)
        for step in steps:
            await carried.run(step, request, "")


def _trigger(state: int) -> str:
    return f"{state:012x}".ljust(32, "0")


def _query(checkpoint: Path) -> ScriptQuery:
    for name, content in _CHECKPOINT.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(content)
    return ScriptQuery(
        writer=SimpleNamespace(_spark=None),
        method="start",
        positional=(),
        named={},
        key="query-q",
        name="q",
        identity=QueryIdentity("foreachbatch", "append", "f"),
        started=StartedQuery(f"file:{checkpoint}"),
        reached=f"file:{checkpoint}",
        fields=[],
    )


def _location(root: Path, state: int, attempt: int = 1) -> str:
    return f"file:{root}/savepoints/savepoint-{FIRST[:8]}-{_trigger(state)[:12]}-{attempt}"


def _live(root: Path, files: RecordedFiles) -> None:
    """Make a savepoint, one that is rolled back when it is complete, and another one, from which a second job starts.

    The kernel's call that syncs a whole file system cannot be recorded, so that each file is synced by itself, as on
    systems without that call.
    """
    with mock.patch.object(disk, "_REPORTS_ERRORS", False), mock.patch.object(disk, "_LARGE", 1000):
        first = Attempt(root, 1)
        for state in sorted((*_SAVED, _ROLLED_BACK)):
            if state == _ROLLED_BACK:
                first.save(state, Step.DISCARD_SAVEPOINT)
            else:
                first.save(state)
                files.mark(f"complete {state}")
        second = Attempt(root, 1, SECOND, _location(root, max(_SAVED)))
        second.begins_with()
        if second.kept() != ["0"]:  # the savepoint is still needed: the attempt warns of that, and continues
            raise NotDone
        files.mark("started")


def _check(crash: Crash) -> None:
    found = [state for state in (*_SAVED, _ROLLED_BACK) if _is_whole(_location(crash.directory, state))]
    promised = {state for state in _SAVED if f"complete {state}" in crash.marks}
    assert promised <= set(found), "a complete savepoint is gone"
    _check_next_attempt(crash, found)
    for state in found:
        _check_start_from(crash, state)


def _check_next_attempt(crash: Crash, found: list[int]) -> None:
    """It begins with states that are no older than those in any savepoint, and leaves nothing of what was cut off."""
    attempt = Attempt(crash.directory, 2)
    begins_with = attempt.begins_with()
    assert begins_with >= max(found, default=0), f"it begins with {begins_with}, older than in savepoints {found}"
    for state in sorted((*_SAVED, _ROLLED_BACK)):
        if state not in found:
            Attempt(crash.directory, 1).discard(state)
    attempt.save(_REPEATED)
    assert len(attempt.kept()) == 1
    assert Attempt(crash.directory, 3).begins_with() == _REPEATED
    names = {path.name for path in (crash.directory / "savepoints").iterdir()}
    ours = [_location(crash.directory, state) for state in found] + [_location(crash.directory, _REPEATED, 2)]
    assert names == {location.rpartition("/")[2] for location in ours}


def _check_start_from(crash: Crash, state: int) -> None:
    """A job that starts from the savepoint has its states, and its second attempt does not need the savepoint."""
    location = _location(crash.directory, state)
    if state == max(_SAVED) and "started" in crash.marks:
        begun = partial(Attempt, crash.directory, job=SECOND)
    else:
        begun = partial(Attempt, crash.directory, job=JobId(f"{state:032x}"))
        assert begun(1, savepoint=location).begins_with() == state
    DirectoryStorage(location, HadoopFiles(None)).remove()
    assert begun(2, savepoint=location).begins_with() == state


def _is_whole(location: str) -> bool:
    storage = DirectoryStorage(location, HadoopFiles(None))
    try:
        manifest = decode_manifest(storage.read(MANIFEST_NAME), "the savepoint")
    except Absent:
        return False
    for file in manifest.files:
        assert storage.check(file.path) == file, f"{file.path} is damaged"
    copied = {f"queries/query-q/{name}" for name in _CHECKPOINT}
    assert {file.path for file in manifest.files} == copied | {"functions/0"}
    return True


COMPONENTS = (Component("savepoint in a directory", DRIVER, _live, _check),)
