"""The durable steps of records that are one file each: what processes leave for their successors and for each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from emberkeep.adapters.leader_news.file import read_leader_file, write_leader_file
from emberkeep.adapters.shared_storage.marks import MARKS_FILE, read_marks, write_marks
from emberkeep.adapters.slurm.ended_jobs import read_ended, write_ended
from emberkeep.base.cluster_identity import IDENTITY_FILE, cluster_id, read_drawn_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.base.started_task_managers import StartedRecord, forget_started, read_started, write_started
from emberkeep.client.clusters.cluster_file import (
    ClusterRecord,
    ClusterShape,
    DaemonRecord,
    read_cluster,
    write_cluster,
)
from emberkeep.client.clusters.zookeeper_access import ZooKeeperAccess
from emberkeep.daemons.records.driver_spec import DriverSpec, read_outcome, read_spec, write_outcome, write_spec
from emberkeep.daemons.records.late_variables import read_late_variables, write_late_variables
from emberkeep.daemons.records.record_versions import OF_THIS_RELEASE, VERSIONS_FILE, read_versions, write_versions
from emberkeep.jobs.leftovers import Kind, Mark
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from tests.support.contracts.job_store import job
from tests.support.crashes.component import Component, KeptFile

LEADER, TASK_MANAGER, DRIVER, CLIENT = "leader", "task manager", "driver", "client"
JOB = JobId("a" * 32)


def _written(write: Callable[[Path, Any], object], *values: object) -> list[Callable[[Path], object]]:
    """Return calls that write these values with ``write`` and return them."""

    def writing(value: object) -> Callable[[Path], object]:
        def write_value(path: Path) -> object:
            write(path, value)
            return value

        return write_value

    return [writing(value) for value in values]


def _or_none(read: Callable[[Path], object]) -> Callable[[Path], object]:
    def read_file(path: Path) -> object:
        try:
            return read(path)
        except Absent:
            return None

    return read_file


def _spec(attempt: int) -> DriverSpec:
    return DriverSpec(
        graph=job(1),
        attempt=attempt,
        host="127.0.0.1",
        task_manager="127.0.0.1:7001",
        agent="/node/agent.record",
        job_manager="127.0.0.1:8081",
        token_file="/state/token",
        checkpoint_root="/state/checkpoints",
        directory="/node/driver",
        logs="/node/logs",
        files=(),
        options={"taskmanager.host": "127.0.0.1"} if attempt > 1 else {},
        checkpoints=(),
        procedure=None,
    )


_OUTCOMES = (
    AttemptOutcome(exit_code=0, kind=None, message=""),
    AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="ValueError: no such column"),
)
_VARIABLES = ({"EMBERKEEP_STATE_GATEWAY": "127.0.0.1:40001"}, {"PATH": "/bin", "HOME": "/home/tester"})
_NEWER = msgspec.structs.replace(OF_THIS_RELEASE, outcome=OF_THIS_RELEASE.outcome + 1)
_NEWEST = msgspec.structs.replace(_NEWER, artefacts=OF_THIS_RELEASE.artefacts + 1)
_NEWS = tuple(
    LeaderNews(LeaderAddress(epoch, f"127.0.0.{epoch}:8081"), ("127.0.0.1:8081", "127.0.0.2:8081")) for epoch in (1, 2)
)
_MARKS = tuple(
    tuple(
        Mark(job_id=JobId(f"{number:032x}"), kind=Kind.CHECKPOINTS, since_ms=number, ended=True)
        for number in range(count)
    )
    for count in (1, 3)
)
_STARTED = StartedRecord(task_manager=TaskManagerId("tm-9"), node_id="node-1", mark="m", directory="/node/tm-9")
_CLUSTERS = tuple(
    ClusterRecord(
        url="https://127.0.0.1:8081",
        token_file="/state/token",
        shape=ClusterShape(nodes=("node-1",), slots=slots, memory="2g", definitions=()),
        job_manager=DaemonRecord(name="jobmanager", identity=own_identity(), directory="/state/jobmanager"),
        task_managers=(),
    )
    for slots in (2, 4)
)


# --- files that more than one value of a call decides -----------------------------------------------------------------


def _write_versions(path: Path, value: object) -> None:
    write_versions(path.parent, value)  # type: ignore[arg-type]


def _read_versions(path: Path) -> object:
    return read_versions(path.parent) if path.exists() else None


def _write_started(path: Path, value: object) -> None:
    write_started(path.parent, value)  # type: ignore[arg-type]


def _forget_started(path: Path) -> object:
    forget_started(path.parent, _STARTED.task_manager)
    return None


def _read_started(path: Path) -> object:
    found = read_started(path.parent)
    return found[0] if found else None


def _read_news(path: Path) -> object:
    news = read_leader_file(path)
    return None if news == LeaderNews() else news


def _drawn(path: Path) -> object:
    root = path.parent
    return cluster_id(Configuration(), StateLayout(root, Configuration()))


def _login(path: Path) -> object:
    access = ZooKeeperAccess(StateLayout(path.parents[1], Configuration()), Configuration())
    access.prepare()
    return path.read_text()


def _read_text(path: Path) -> object:
    return path.read_text() if path.exists() else None


_KEPT = (
    (DRIVER, "outcome", KeptFile("outcome.record", _written(write_outcome, *_OUTCOMES), read_outcome)),
    (
        TASK_MANAGER,
        "order to a driver",
        KeptFile("spec.record", _written(write_spec, _spec(1), _spec(2)), _or_none(read_spec)),
    ),
    (
        TASK_MANAGER,
        "late variables of a process",
        KeptFile("late-variables.record", _written(write_late_variables, *_VARIABLES), read_late_variables),
    ),
    (
        TASK_MANAGER,
        "versions of records",
        KeptFile(VERSIONS_FILE, _written(_write_versions, OF_THIS_RELEASE, _NEWER, _NEWEST), _read_versions, again=2),
    ),
    (TASK_MANAGER, "leader's address", KeptFile("leader.record", _written(write_leader_file, *_NEWS), _read_news)),
    (
        LEADER,
        "marks of data to delete",
        KeptFile(MARKS_FILE, _written(write_marks, *_MARKS), lambda path: read_marks(path) or None),
    ),
    (
        LEADER,
        "ended Slurm jobs",
        KeptFile(
            "ended.record",
            _written(write_ended, frozenset({101}), frozenset({101, 102})),
            lambda path: read_ended(path) or None,
        ),
    ),
    (
        LEADER,
        "started task managers",
        KeptFile(
            "tm-9.record",
            [
                *_written(_write_started, _STARTED, msgspec.structs.replace(_STARTED, identity=own_identity())),
                _forget_started,
            ],
            _read_started,
        ),
    ),
    (
        LEADER,
        "id of an embedded cluster",
        KeptFile(IDENTITY_FILE, [_drawn], lambda path: read_drawn_id(path.parent), is_random=True),
    ),
    (CLIENT, "record of a local cluster", KeptFile("cluster.json", _written(write_cluster, *_CLUSTERS), read_cluster)),
    (CLIENT, "login at ZooKeeper", KeptFile("zookeeper/login", [_login], _read_text, is_random=True)),
)

COMPONENTS = tuple(Component(name, process, kept.live, kept.check) for process, name, kept in _KEPT)
