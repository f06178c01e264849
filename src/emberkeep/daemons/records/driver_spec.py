"""What a task manager hands to a driver process, and what the driver hands back: two self-checking records on disk.

They lie in the attempt's directory (mode 0600), so nothing secret shows in an argument list, and a driver's outcome is
known even when nobody listened at the moment it ended.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import AttemptOutcome, JobGraph
from emberkeep.lifecycle.model import ProcedureRequest
from emberkeep.taskmanager.libraries.cache import BoundFile

SPEC_KIND, SPEC_VERSION = "driver-spec", 1
OUTCOME_KIND, OUTCOME_VERSION = "driver-outcome", 1
OUTCOME_FILE = "outcome.record"  # in the driver's directory


class DriverSpec(Compatible, frozen=True, kw_only=True):
    """Everything a driver process needs."""

    graph: JobGraph
    attempt: int
    host: str
    task_manager: str
    agent: str  # file in which each life of the task manager says which process it is
    leader: str = ""  # file in which it says which JobManager leads; empty where there is only one
    job_manager: str
    token_file: str
    checkpoint_root: str
    checkpoints_recorded: bool = False  # the directory that it lies in carries an ownership record
    directory: str  # of the attempt
    logs: str
    files: tuple[BoundFile, ...]  # the job's artefacts, as this node has them
    options: dict[str, str]  # the task manager's configuration, as texts
    checkpoints: tuple[QueryCheckpoint, ...]  # what earlier attempts have committed
    procedure: ProcedureRequest | None  # to be carried on


def write_spec(path: Path, spec: DriverSpec) -> None:
    write_record(path, SPEC_KIND, SPEC_VERSION, msgspec.json.encode(spec))


def read_spec(path: Path) -> DriverSpec:
    """Raises Absent, Unavailable, Fatal."""
    try:
        return msgspec.json.decode(read_record(path, SPEC_KIND, SPEC_VERSION), type=DriverSpec)
    except msgspec.ValidationError as error:
        raise Fatal(f"{path}: {error}") from error


def write_outcome(path: Path, outcome: AttemptOutcome) -> None:
    write_record(path, OUTCOME_KIND, OUTCOME_VERSION, msgspec.json.encode(outcome))


def read_outcome(path: Path) -> AttemptOutcome | None:
    """The outcome that a driver left, None when it left none (it was killed). Raises Fatal for a damaged one,
    Unavailable."""
    try:
        return msgspec.json.decode(read_record(path, OUTCOME_KIND, OUTCOME_VERSION), type=AttemptOutcome)
    except Absent:
        return None
    except msgspec.ValidationError as error:
        raise Fatal(f"{path}: {error}") from error
