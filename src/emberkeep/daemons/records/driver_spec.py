"""The two records that a task manager and its driver process exchange, on disk and with checksums.

The records are in the attempt's directory (mode 0600). So no secret is in an argument list, and a driver's outcome is
known even if no process was watching when the driver ended.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.base.files.hostile import read_bytes
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import AttemptOutcome, JobGraph
from emberkeep.lifecycle.model import ProcedureRequest
from emberkeep.taskmanager.libraries.cache import BoundFile

SPEC_KIND, SPEC_VERSION = "driver-spec", 1
OUTCOME_KIND, OUTCOME_VERSION = "driver-outcome", 1
OUTCOME_FILE = "outcome.record"  # in the driver's directory
_MOST_TEXT = 1024**2  # characters of a message or a traceback


class DriverSpec(Compatible, frozen=True, kw_only=True):
    """Everything that a driver process needs."""

    graph: JobGraph
    attempt: int
    host: str  # where other processes reach the driver
    bind_host: str = ""  # the address that it binds; empty: ``host``
    task_manager: str
    agent: str  # file in which each task manager process names itself
    leader: str = ""  # file in which the task manager names the leader; empty if there is only one JobManager
    job_manager: str
    token_file: str
    tls: TlsFiles | None = None  # None: the cluster does not encrypt
    checkpoint_root: str
    checkpoints_recorded: bool = False  # the parent directory has an ownership record
    directory: str  # of the attempt
    logs: str
    files: tuple[BoundFile, ...]  # the job's artefacts, with their paths on this node
    options: dict[str, str]  # the task manager's configuration, as texts
    checkpoints: tuple[QueryCheckpoint, ...]  # commits of earlier attempts
    procedure: ProcedureRequest | None  # to be carried out; an earlier attempt may have begun it
    resources_file: str = ""  # lists the driver's custom resources for Spark; "" if it has none
    lineage: str = ""  # job store of the JobManager that ordered the start; "": of an earlier release
    epoch: int = 0  # of that JobManager
    namespace_claim: str = ""  # proves the job's namespace to task managers, see ``identities.attempts``


def write_spec(path: Path, spec: DriverSpec) -> None:
    write_record(path, SPEC_KIND, SPEC_VERSION, msgspec.json.encode(spec))


def read_spec(path: Path) -> DriverSpec:
    """Return the spec of a driver. Raises Absent, Unavailable, Fatal."""
    try:
        return from_json(read_record(path, SPEC_KIND, SPEC_VERSION), DriverSpec)
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error


def write_outcome(path: Path, outcome: AttemptOutcome) -> None:
    """Write how a driver has ended, with at most ``_MOST_TEXT`` characters of a script's exception."""
    write_record(path, OUTCOME_KIND, OUTCOME_VERSION, msgspec.json.encode(_shortened(outcome)))


def read_outcome(path: Path) -> AttemptOutcome | None:
    """Return the outcome that a driver wrote; None if it wrote none, for example because it was killed.

    Longer texts than ``write_outcome`` writes are cut: the file is the job's.

    Raises Fatal if the outcome is damaged, NewerFormat, Unavailable.
    """
    try:
        return _shortened(from_json(read_record(path, OUTCOME_KIND, OUTCOME_VERSION, read_bytes), AttemptOutcome))
    except Absent:
        return None
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error


def _shortened(outcome: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome with the beginning of its message and the end of its traceback."""
    return msgspec.structs.replace(
        outcome, message=outcome.message[:_MOST_TEXT], traceback=outcome.traceback[-_MOST_TEXT:]
    )
