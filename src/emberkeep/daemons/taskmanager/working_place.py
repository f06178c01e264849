"""The working directory of a task manager: held by one process at a time, owned by one task manager permanently.

Its ownership record names its cluster and its task manager. The id stays with the directory: a task manager that comes
back at another address keeps its id, and so its slots.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.processes.place_lock import held
from emberkeep.base.clock import Clock
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_HOST, TASK_MANAGER_ID
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.ownership import HasNoOwner, OwnedPlaceKind, Owner, adopt, claim, read_owner
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import TaskManagerId, parse_task_manager_id
from emberkeep.daemons.records.agent_files import read_agent_life
from emberkeep.daemons.taskmanager.newer_records import refuse_newer_records

log = structlog.get_logger(__name__)

# Files that exist before the record: the lock, and the process's first logs.
_BEFORE_THE_RECORD = ("lock", "logs")
# The previous release wrote no ownership records. Each of its task manager processes wrote one of these files.
_SIGNS_OF_THE_RELEASE_BEFORE = {"agent.record": b"task-manager-agent ", "slots.record": b"task-manager-slots "}


@dataclass(frozen=True)
class WorkingPlace:
    """A working directory that this process holds. ``owner``: its ownership record."""

    directory: WorkingDirectory
    owner: Owner

    @property
    def task_manager(self) -> TaskManagerId:
        return TaskManagerId(self.owner.holder)


@contextlib.contextmanager
def held_working_place(
    configuration: Configuration, layout: StateLayout, cluster: str, clock: Clock
) -> Iterator[WorkingPlace]:
    """Create the working directory if needed, lock it and check its owner.

    If this raises, nothing in the directory has changed except the lock file.

    Raises Conflict (in use, owned by another task manager or cluster, or with data of an unknown owner), InvalidInput
    (the id), Unavailable, Damaged, NewerFormat, Fatal.
    """
    wanted = configuration[TASK_MANAGER_ID]
    default = parse_task_manager_id(wanted or f"tm-{configuration[TASK_MANAGER_HOST].replace(':', '-')}")
    directory = WorkingDirectory(layout.working_directory(default))
    _make(directory.root)
    hint = "give each its own taskmanager.resource-id and working directory"
    name = f"task manager {_id_of(directory.root) or default}"
    with held(directory.lock, name, hint=hint, unnamed=_life_in(directory)):
        refuse_newer_records(directory)
        yield WorkingPlace(directory, _owned(directory.root, wanted, default, cluster, clock))


def _id_of(root: Path) -> str:
    """Return the recorded id; "" if it is unknown. It is read before the lock is held, so use it only in messages."""
    try:
        found = read_owner(root)
    except EmberkeepError:
        return ""
    return "" if found is None else found.holder


def _life_in(directory: WorkingDirectory) -> str:
    """Return a name for a lock holder that does not name itself, such as a process of the previous release."""
    try:
        life = read_agent_life(directory.agent_record)
    except (NewerFormat, Unavailable):
        life = None
    return f"another task manager{'' if life is None else f': pid {life.process.pid}'}"


def _make(root: Path) -> None:
    try:
        make_private(root)
    except OSError as error:
        raise Unavailable(
            f"cannot use the working directory {root}: {error.strerror}",
            hint=f"check the directory, or set {WORKING_DIRECTORY.key}",
        ) from error


def _owned(root: Path, wanted: str, default: TaskManagerId, cluster: str, clock: Clock) -> Owner:
    """Return the directory's ownership record; write it first if the directory is new.

    Raises Conflict if this task manager is not the owner.
    """
    found = read_owner(root)
    mine = Owner(
        cluster_id=cluster,
        kind=OwnedPlaceKind.WORKING_DIRECTORY,
        created_at_ms=clock.now_ms(),
        holder=wanted or (default if found is None else found.holder),
        place_id=secrets.token_hex(16),
    )
    if found is not None and (found.cluster_id, found.kind) == (mine.cluster_id, mine.kind):
        if found.holder != mine.holder:
            raise Conflict(
                f"{root} is the working directory of task manager {found.holder}; {TASK_MANAGER_ID.key} is {wanted}",
                hint=f"leave {TASK_MANAGER_ID.key} empty or set it to {found.holder} to continue with its slots, or "
                f"name another directory with {WORKING_DIRECTORY.key}",
            )
        if found.holder != default:
            log.info(
                "the task manager keeps the id that its working directory records",
                task_manager=found.holder,
                directory=str(root),
            )
        return found
    if found is None and _is_of_the_release_before(root):
        log.info("took over the working directory of the previous release", directory=str(root), id=mine.holder)
        return adopt(root, mine)
    try:
        return claim(root, mine, ignoring=_BEFORE_THE_RECORD)
    except HasNoOwner as error:
        raise Conflict(
            f"{error.message}: it is not the working directory of a task manager",
            hint=f"name an empty directory with {WORKING_DIRECTORY.key}",
        ) from None


def _is_of_the_release_before(root: Path) -> bool:
    """True if the previous release wrote records here. Raises Unavailable if they cannot be read."""
    for name, kind in _SIGNS_OF_THE_RELEASE_BEFORE.items():
        try:
            with (root / name).open("rb") as file:
                head = file.read(64)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unavailable(f"cannot read {root / name}: {error.strerror}", hint="check its permissions") from error
        if head.startswith(b"emberkeep-record " + kind):
            return True
    return False
