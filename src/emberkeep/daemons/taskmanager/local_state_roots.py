"""Where a task manager keeps its local copies, apart from all other task managers with the same root directory.

```
<working directory>/state/         copies/ and staging/ of this task manager alone
<root>/<task manager>-<place>/     the same if a root directory is configured, with lock and ownership record
<root>/copies/, <root>/staging/    of the previous release: of all task managers there, without a record
```

``place`` is the id of the working directory's own record, so a task manager that has lost its disk does not take the
copies of its predecessor for its own. Other task managers' files below the root are never changed; they count against
the quota.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.processes.place_lock import held, last_holder
from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.no_copies import NoCopies
from emberkeep.base.clock import Clock
from emberkeep.base.configuration.options.local_state import LOCAL_STATE_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.files.errors import cannot_read, is_directory
from emberkeep.base.files.ownership import OWNER_FILE, OwnedPlaceKind, Owner, PlaceStanding, adopt, check, read_owner
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.processes.process_identity import may_be_alive
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.local_state.ports import LocalCopies

log = structlog.get_logger(__name__)

_LOCK = "lock"
_PLACE_DIGITS = 16  # digits of the place's id, enough to distinguish places


@dataclass(frozen=True)
class LocalStateRoot:
    """The directory of a task manager's local copies.

    ``path``: used by this task manager alone. ``shared``: the configured root above it; None if the directory is in the
    working directory, which has its own lock and record.
    """

    path: Path
    shared: Path | None
    owner: Owner


def local_state_root(configuration: Configuration, place: WorkingPlace, clock: Clock) -> LocalStateRoot:
    """Return where copies are kept with this configuration. Does not access the disk."""
    mine = Owner(
        cluster_id=place.owner.cluster_id,
        kind=OwnedPlaceKind.LOCAL_STATE,
        created_at_ms=clock.now_ms(),
        holder=place.owner.holder,
        place_id=secrets.token_hex(16),
        belongs_to=place.owner.place_id,
    )
    configured = configuration[LOCAL_STATE_DIRECTORY]
    if not configured:
        return LocalStateRoot(place.directory.root / "state", None, mine)
    shared = Path(configured)
    name = f"{place.task_manager}-{place.owner.place_id[:_PLACE_DIGITS]}"
    return LocalStateRoot(shared / name, shared, mine)


@contextlib.contextmanager
def held_copies(root: LocalStateRoot) -> Iterator[LocalCopies]:
    """Lock this task manager's own directory and yield its copies; NoCopies if the directory's record cannot be used.

    A missing disk does not keep a task manager from starting: the disk is tried again later. Raises Conflict if another
    process with a copy of this working directory uses the directory, or if it belongs to another cluster.
    """
    with contextlib.ExitStack() as stack:
        usable = True
        if root.shared is not None and _is_made(root.path):
            name = f"task manager {root.owner.holder}"
            stack.enter_context(held(root.path / _LOCK, name, hint="do not start copies of one working directory"))
            usable = _recorded(root)
        yield DiskCopies(root.path) if usable else NoCopies()


def _is_made(path: Path) -> bool:
    try:
        make_private(path)
    except OSError as error:
        log.warning("cannot create the directory of local state", directory=str(path), reason=error.strerror)
        return False
    return True


def _recorded(root: LocalStateRoot) -> bool:
    """True if the directory now has this task manager's record. Raises Conflict if it belongs to another owner."""
    finding = check(root.path, root.owner, ignoring=(_LOCK,))
    if finding.standing is PlaceStanding.ANOTHERS and finding.problem is not None:
        raise finding.problem
    try:
        if finding.standing in (PlaceStanding.EMPTY, PlaceStanding.UNRECORDED):  # no other process can know its name
            adopt(root.path, root.owner)
        elif finding.problem is not None:
            raise finding.problem
    except EmberkeepError as error:
        log.warning(
            "this task manager process keeps no local copies of state", directory=str(root.path), reason=str(error)
        )
        return False
    return True


# --- copies of the previous release -----------------------------------------------------------------------------------


def take_over(root: LocalStateRoot, allocations: Iterable[tuple[JobId, AllocationId]]) -> None:
    """Move the previous release's copies of these slots to this task manager's own directory.

    All other copies stay: they may belong to another task manager, as their owner is not recorded.
    """
    if root.shared is None or not is_directory(root.shared / "copies"):
        return
    before = root.shared / "copies"
    for job_id, allocation_id in allocations:
        _move(before / job_id / allocation_id, root.path / "copies" / job_id / allocation_id)
        with contextlib.suppress(OSError):  # not empty, or absent
            (before / job_id).rmdir()
    for directory in (before, root.shared / "staging"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    if is_directory(before):
        log.warning(
            "local copies of the previous release that belong to no slot of this task manager are kept",
            directory=str(before),
            hint="delete them once every task manager with this root directory runs this release",
        )


def _move(source: Path, target: Path) -> None:
    try:
        if source.is_dir() and not source.is_symlink() and not target.exists():
            make_private(target.parent)
            source.rename(target)
    except OSError as error:
        log.warning("cannot move local copies of the previous release", directory=str(source), reason=error.strerror)


# --- shared roots -----------------------------------------------------------------------------------------------------


def share_of(root: LocalStateRoot, quota: int) -> int:
    """Return how many bytes of ``quota`` this task manager may use. Blocks.

    Bytes kept there by task managers that are not alive are subtracted. The live ones, this one included, get equal
    shares of the rest.
    """
    if root.shared is None:
        return quota
    sharers, left_behind = 1, 0
    for other in _others(root.shared, root.path):
        holder = last_holder(other / _LOCK)
        if holder is not None and may_be_alive(holder.process):
            sharers += 1
        else:
            left_behind += _disk_bytes(other)
    return max(0, quota - left_behind) // sharers


def _others(shared: Path, own: Path) -> list[Path]:
    """Return the directories of other task managers below ``shared``, and those of the previous release."""
    found = [shared / name for name in ("copies", "staging")]
    with contextlib.suppress(OSError):
        found += [path for path in shared.iterdir() if path != own and _is_local_state(path)]
    return found


def _is_local_state(path: Path) -> bool:
    try:
        owner = read_owner(path) if is_directory(path) else None
    except EmberkeepError:
        return False
    return owner is not None and owner.kind is OwnedPlaceKind.LOCAL_STATE


def _disk_bytes(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118
    return total


# --- unused roots -----------------------------------------------------------------------------------------------------


def delete_own(root: LocalStateRoot) -> None:
    """Delete this task manager's own directory, if it exists. Raises Fatal, Conflict, Unavailable."""
    try:
        root.path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_read(root.path, error) from error
    if root.shared is None:
        DiskCopies(root.path).clear()
        return
    with held(root.path / _LOCK, f"task manager {root.owner.holder}", hint="end that process first"):
        finding = check(root.path, root.owner, ignoring=(_LOCK, "copies", "staging"))
        if finding.standing not in (PlaceStanding.OWNED, PlaceStanding.EMPTY):
            raise Fatal(f"{root.path} is not deleted: {finding.problem}")
        DiskCopies(root.path).clear()
        try:
            for name in (_LOCK, OWNER_FILE):
                (root.path / name).unlink(missing_ok=True)
            root.path.rmdir()
        except OSError as error:
            raise Fatal(f"cannot delete {root.path}: {error.strerror}", hint="check its permissions") from error
