"""Where a task manager keeps its local copies, apart from all others that have the same root directory.

```
<working directory>/state/         copies/ and staging/ of this task manager alone
<root>/<task manager>-<place>/     the same where a root directory is configured, with lock and ownership record
<root>/copies/, <root>/staging/    of the release before: of all task managers there, without a record
```

``place`` is the id of the working directory's own record: a task manager that has lost its disk does not take the
copies of the one before for its own. What others keep below the root is never changed; it counts against the quota.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.no_copies import NoCopies
from emberkeep.base.clock import Clock
from emberkeep.base.configuration.options import LOCAL_STATE_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.files.errors import cannot_read, is_directory
from emberkeep.base.files.ownership import OWNER_FILE, Owner, PlaceKind, Standing, adopt, check, read_owner
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.process_identity import is_alive
from emberkeep.daemons.taskmanager.place_lock import held, last_holder
from emberkeep.daemons.taskmanager.working_place import WorkingPlace
from emberkeep.local_state.ports import LocalCopies

log = structlog.get_logger(__name__)

_LOCK = "lock"
_PLACE_DIGITS = 16  # of the place's id: enough to tell places apart


@dataclass(frozen=True)
class LocalStateRoot:
    """``path``: of this task manager alone. ``shared``: the configured root above it; None: it is in the working
    directory, which has lock and record itself."""

    path: Path
    shared: Path | None
    owner: Owner


def local_state_root(configuration: Configuration, place: WorkingPlace, clock: Clock) -> LocalStateRoot:
    """Where copies are kept by this configuration. Looks at no disk."""
    mine = Owner(
        cluster_id=place.owner.cluster_id,
        kind=PlaceKind.LOCAL_STATE,
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
    """Hold this task manager's own directory, and give the copies in it; none where its record cannot be used.

    A disk that is not there keeps no task manager from starting: the copies look for it again. Raises Conflict: another
    process with a copy of this working directory uses it, or it is of another cluster.
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
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("the directory of local state cannot be made", directory=str(path), reason=error.strerror)
        return False
    return True


def _recorded(root: LocalStateRoot) -> bool:
    """Whether the directory carries this task manager's record now. Raises Conflict."""
    finding = check(root.path, root.owner, ignoring=(_LOCK,))
    if finding.standing is Standing.ANOTHERS and finding.problem is not None:
        raise finding.problem
    try:
        if finding.standing in (Standing.EMPTY, Standing.UNRECORDED):  # nobody else could know its name
            adopt(root.path, root.owner)
        elif finding.problem is not None:
            raise finding.problem
    except EmberkeepError as error:
        log.warning("no local copies of state are kept in this life", directory=str(root.path), reason=str(error))
        return False
    return True


# --- what the release before has left -------------------------------------------------------------------------------


def take_over(root: LocalStateRoot, allocations: Iterable[tuple[JobId, AllocationId]]) -> None:
    """Move copies of the release before, as far as they are of these slots, to this task manager's own directory.

    All others stay: of another task manager they may be its own, and who they belonged to is not recorded.
    """
    if root.shared is None or not is_directory(root.shared / "copies"):
        return
    before = root.shared / "copies"
    for job_id, allocation_id in allocations:
        _move(before / job_id / allocation_id, root.path / "copies" / job_id / allocation_id)
        with contextlib.suppress(OSError):  # it is not empty, or never was
            (before / job_id).rmdir()
    for directory in (before, root.shared / "staging"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    if is_directory(before):
        log.warning(
            "local copies of the release before belong to no slot of this task manager, and stay",
            directory=str(before),
            hint="delete them once every task manager with this root directory runs this release",
        )


def _move(source: Path, target: Path) -> None:
    try:
        if source.is_dir() and not source.is_symlink() and not target.exists():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            source.rename(target)
    except OSError as error:
        log.warning("local copies of the release before stay", directory=str(source), reason=error.strerror)


# --- a root that several share --------------------------------------------------------------------------------------


def share_of(root: LocalStateRoot, quota: int) -> int:
    """Bytes of ``quota`` for this task manager: what is there of others that do not live is taken off, those that live
    get equal shares. Blocks."""
    if root.shared is None:
        return quota
    sharers, left_behind = 1, 0
    for other in _others(root.shared, root.path):
        holder = last_holder(other / _LOCK)
        if holder is not None and is_alive(holder.process):
            sharers += 1
        else:
            left_behind += _disk_bytes(other)
    return max(0, quota - left_behind) // sharers


def _others(shared: Path, own: Path) -> list[Path]:
    """What task managers but this one keep there."""
    found = [shared / name for name in ("copies", "staging")]
    with contextlib.suppress(OSError):
        found += [path for path in shared.iterdir() if path != own and _is_local_state(path)]
    return found


def _is_local_state(path: Path) -> bool:
    try:
        owner = read_owner(path) if is_directory(path) else None
    except EmberkeepError:
        return False
    return owner is not None and owner.kind is PlaceKind.LOCAL_STATE


def _disk_bytes(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118
    return total


# --- a root that is not used any more -------------------------------------------------------------------------------


def delete_own(root: LocalStateRoot) -> None:
    """Delete this task manager's own directory; one that is not there is fine. Raises Fatal, Conflict, Unavailable."""
    try:
        root.path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_read(root.path, error) from error
    if root.shared is None:
        DiskCopies(root.path).clear()
        return
    with held(root.path / _LOCK, f"task manager {root.owner.holder}", hint="end it first"):
        finding = check(root.path, root.owner, ignoring=(_LOCK, "copies", "staging"))
        if finding.standing not in (Standing.OWNED, Standing.EMPTY):
            raise Fatal(f"{root.path} is left as it is: {finding.problem}")
        DiskCopies(root.path).clear()
        try:
            for name in (_LOCK, OWNER_FILE):
                (root.path / name).unlink(missing_ok=True)
            root.path.rmdir()
        except OSError as error:
            raise Fatal(f"cannot delete {root.path}: {error.strerror}", hint="check its permissions") from error
