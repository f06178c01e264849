"""Records of the task managers that a JobManager has started on this machine, so that other processes know them too.

The next leader continues with these task managers, and ``emberkeep cluster down`` stops them. A record is written
before the process is started, and completed afterwards. Its mark, which the process carries in its environment,
identifies the process if its starter was killed in between.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, sync_directory, write_record
from emberkeep.base.files.errors import names_if_there
from emberkeep.base.ids import TaskManagerId
from emberkeep.base.processes.process_identity import ProcessIdentity, identify, is_alive, read_stat

MARK_VARIABLE = "EMBERKEEP_TASK_MANAGER_START"

_KIND, _VERSION = "started-task-manager", 1
_SUFFIX = ".record"
_PROC = Path("/proc")


class StartedRecord(Compatible, frozen=True, kw_only=True):
    """One start of a task manager.

    ``identity``: None in a record that was written before the start. ``directory``: the task manager's working
    directory.
    """

    task_manager: TaskManagerId
    node_id: str
    mark: str
    directory: str
    identity: ProcessIdentity | None = None

    def process(self) -> ProcessIdentity | None:
        """Return the live process of this start; None if it has ended or was never started. Blocks."""
        if self.identity is None:
            return _find_marked(self.mark)
        return self.identity if is_alive(self.identity) else None


def write_started(directory: Path, record: StartedRecord) -> None:
    """Write the record durably, replacing an earlier one of that task manager. Raises Fatal."""
    write_record(_path(directory, record.task_manager), _KIND, _VERSION, msgspec.json.encode(record))


def read_started(directory: Path) -> list[StartedRecord]:
    """Return all records, by id. Raises Unavailable, Fatal (damaged, or of another release)."""
    found = []
    for name in names_if_there(directory):
        if not name.endswith(_SUFFIX):
            continue
        path = directory / name
        try:
            found.append(from_json(read_record(path, _KIND, _VERSION), StartedRecord))
        except Absent:
            continue  # removed in the meantime
        except msgspec.MsgspecError as error:
            raise Fatal(f"{path} is damaged: {error}", hint="end that task manager, then delete the file") from None
    return found


def forget_started(directory: Path, task_manager: TaskManagerId) -> None:
    """Remove the record. Does nothing if no record exists. Raises Fatal."""
    path = _path(directory, task_manager)
    try:
        if path.exists():
            path.unlink(missing_ok=True)
            sync_directory(directory)
    except OSError as error:
        raise Fatal(f"cannot delete {path}: {error.strerror}", hint="check the permissions of its directory") from error


def _path(directory: Path, task_manager: TaskManagerId) -> Path:
    return directory / f"{task_manager}{_SUFFIX}"


def _find_marked(mark: str) -> ProcessIdentity | None:
    """Return the task manager process with this mark; None if none runs.

    Child processes inherit the mark, but only the task manager is the leader of its session.
    """
    variable = f"{MARK_VARIABLE}={mark}".encode()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            marked = variable in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's process, or one that has just ended
            continue
        stat = read_stat(int(entry.name)) if marked else None
        if stat is not None and stat.session == stat.pid:
            return identify(stat.pid)
    return None
