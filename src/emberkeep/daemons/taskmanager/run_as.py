"""The users whom the processes of jobs run as (``security.run-as``), and the places that these users must reach.

Directories that jobs share can be entered by all users, but not listed. What belongs to one job belongs to its user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from emberkeep.adapters.shared_storage.checkpoint_place import require_checkpoint_place
from emberkeep.base.configuration.job_users import ALL_OTHERS, refused, user_names
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.security import ENCRYPTION, RUN_AS
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.acting_user import check_acting_users
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser, credentials_of, find_user
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.protocol.messages.task_managers import StartDriver

_CHECK_SECONDS = 60.0
_ENTER_SECONDS = 10.0
_CHECK = "import os, sys, emberkeep; sys.exit(0 if os.access(sys.argv[1], os.X_OK) else sys.argv[1])"
_ENV = "/usr/bin/env"
_SHARED = 0o711  # others may enter, and open what they know by name
_DROP = 0o1777  # others may also list it (to make it durable) and create entries, and replace only their own


class JobUsers:
    """Decides which user a job's processes run as. ``users``: by namespace; if empty, the task manager's user."""

    def __init__(self, users: Mapping[str, OsUser], token: str) -> None:
        self._users = users
        self._credentials = AttemptCredentials(token)

    @property
    def all(self) -> tuple[OsUser, ...]:
        return tuple(dict.fromkeys(self._users.values()))

    def of(self, namespace: str) -> OsUser | None:
        """Return the user for a namespace's jobs ("": none); None: the task manager's user. Raises Fatal (no user)."""
        if not self._users:
            return None
        user = self._users.get(namespace) or self._users.get(ALL_OTHERS)
        if user is None:
            jobs = f"namespace {namespace!r}" if namespace else "jobs without a namespace"
            raise Fatal(
                f"{RUN_AS.key} names no user for {jobs}",
                hint=f"add `{namespace or ALL_OTHERS}=USER` to {RUN_AS.key} of the task managers",
            )
        return user

    def of_claim(self, job_id: JobId, claim: str) -> OsUser | None:
        """Return the user for an executor of a job whose driver has sent ``claim``. Raises Fatal."""
        if not self._users:
            return None
        namespace = self._credentials.namespace_of(job_id, claim)
        if namespace is None:
            raise Fatal(
                f"the driver of job {job_id} does not prove the namespace of its job",
                hint="start the job's next attempt: drivers of the previous release cannot prove it",
            )
        return self.of(namespace)

    def owner_of(self, directory: Path) -> OsUser | None:
        """Return the user who owns a process's directory. None: the task manager's user. Blocks.

        Raises Fatal (a user who is no longer configured), Unavailable.
        """
        try:
            owner = directory.stat().st_uid
        except OSError as error:
            raise cannot_read(directory, error) from error
        if owner == os.geteuid():
            return None
        return self.with_id(owner, f"{directory} belongs to")

    def with_id(self, user_id: int, what: str) -> OsUser:
        """Return a configured user. ``what`` begins the error. Raises Fatal (a user who is no longer configured)."""
        for user in self.all:
            if user.uid == user_id:
                return user
        raise Fatal(f"{what} user id {user_id}, whom {RUN_AS.key} does not name")


def job_users(configuration: Configuration) -> dict[str, OsUser]:
    """Return the configured users by namespace, ``*`` for all others; empty if none are configured.

    Raises InvalidInput (not a list, an unknown user, root, two users for one namespace, other settings that do not fit)
    and Fatal (this process is not root, or its threads cannot act as others).
    """
    text = configuration[RUN_AS]
    if not text.strip():
        return {}
    if os.geteuid() != 0:
        raise Fatal(
            f"{RUN_AS.key} is set, but the task manager does not run as root, and cannot start processes as others",
            hint=f"start the task manager as root, or remove {RUN_AS.key}",
        )
    if configuration[ENCRYPTION] != "tls":
        raise refused(
            f"needs {ENCRYPTION.key}: tls, because without it drivers use the cluster's token, which other users "
            "cannot read"
        )
    if configuration[LOCAL_RECOVERY]:
        check_acting_users()  # the node's state gateway opens a job's files as the job's user
    return {namespace: find_user(name, RUN_AS.key) for namespace, name in user_names(text).items()}


def open_working_directory(layout: StateLayout, directory: WorkingDirectory, users: tuple[OsUser, ...]) -> None:
    """Let the users that jobs run as enter the working directory, and check that they can start Python here.

    Blocks. Raises Fatal.
    """
    if not users:
        return
    try:
        for place in (directory.jobs, directory.logs / "jobs"):
            make_shared(place, directory.root)
        inner = directory.root
        while inner != layout.root and layout.root in inner.parents:
            inner = inner.parent
            _let_pass(inner)
        _let_pass(directory.root)
    except OSError as error:
        raise Fatal(f"cannot open {error.filename} to the users that jobs run as: {error.strerror}") from error
    for user in users:
        _check_reach(user, directory.jobs)


def make_shared(place: Path, root: Path) -> None:
    """Make a directory below ``root``, and let all users pass through it and those between. Raises OSError."""
    for each in reversed([place, *(parent for parent in place.parents if root in parent.parents)]):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=_SHARED)
        each.chmod(_SHARED)


def _let_pass(directory: Path) -> None:
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o005 != 0o001:
        directory.chmod(mode & ~0o006 | 0o001)


def _check_reach(user: OsUser, place: Path) -> None:
    hint = (
        "every user that a job runs as must be able to enter the directories above the working directory "
        "(emberkeep.state-dir, taskmanager.working-dir) and to read Python's installation"
    )
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _CHECK, str(place)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_SECONDS,
            cwd="/",
            check=False,
            **credentials_of(user),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fatal(f"{RUN_AS.key}: cannot start {sys.executable} as {user.name}: {error}", hint=hint) from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise Fatal(f"{RUN_AS.key}: user {user.name} cannot use {said or sys.executable}", hint=hint)


def _can_enter(user: OsUser, directory: Path) -> bool:
    """True if ``user`` may make this directory the current one. Blocks. Raises OSError."""
    command = [*_enter(directory), "true"]
    try:
        ended = subprocess.run(
            command, capture_output=True, cwd="/", check=False, timeout=_ENTER_SECONDS, **credentials_of(user)
        )
    except subprocess.TimeoutExpired as error:  # a file system that does not answer
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(directory)) from error
    return ended.returncode == 0


def _enter(directory: Path) -> tuple[str, ...]:
    """Return a command prefix that enters ``directory`` with the rights of the user whom the command runs as.

    ``subprocess`` would enter the directory as root, and so give the user access to what a directory above it closes.
    """
    return (_ENV, "-C", str(directory))


def entered(wanted: Path, user: OsUser | None, directory: Path) -> tuple[tuple[str, ...], Path]:
    """Return a command prefix with which a process of ``user`` runs in ``wanted``, and the directory to start it in.

    If the user may not enter ``wanted``, the process stays in ``directory``. Raises OSError.
    """
    if user is None or wanted == directory:
        return (), wanted
    return (_enter(wanted) if _can_enter(user, wanted) else ()), directory


def open_storage(layout: StateLayout) -> None:
    """Let the users that jobs run as reach their checkpoints and create savepoints. Creates no missing parents.

    Blocks. Raises OSError.
    """
    places = (layout.storage, layout.checkpoints.parent, layout.checkpoints)
    for place in dict.fromkeys(places):
        if place.is_dir() and place.stat().st_uid == os.geteuid():
            _let_pass(place)
    with contextlib.suppress(FileNotFoundError):  # it tells the driver that the storage is mounted here
        (layout.checkpoints / OWNER_FILE).chmod(0o644)
    if layout.savepoints.parent.is_dir():
        layout.savepoints.mkdir(mode=_DROP, exist_ok=True)
        if layout.savepoints.stat().st_uid == os.geteuid():
            layout.savepoints.chmod(_DROP)
            _let_pass(layout.savepoints.parent)


def own_checkpoints(root: Path, user: OsUser, *, may_create: bool) -> None:
    """Create the directory of a job's checkpoints for its user, or check that it is the user's.

    ``may_create``: False if an earlier attempt has created the directory. If it is then missing, its file system is not
    mounted, which the driver reports. Blocks. Raises OSError, Fatal (another owner).
    """
    if may_create and root.parent.is_dir():
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        owner = os.fstat(descriptor).st_uid
        if owner == os.geteuid() and not os.listdir(descriptor):  # noqa: PTH208
            os.fchown(descriptor, user.uid, user.gid)
        elif owner != user.uid:
            raise Fatal(
                f"the job's checkpoints in {root} belong to user id {owner}, and the job runs as {user.name}",
                hint=f"if the job may have them: `chown -R {user.name}: {root}`",
            )
    finally:
        os.close(descriptor)


def give_storage(request: StartDriver, host: str, layout: StateLayout | None, user: OsUser) -> None:
    """Let the user of a driver on ``host`` reach the job's place in the shared storage. Raises OSError, Fatal."""
    root = Path(f"{request.checkpoint_root}/{request.graph.job_id}")
    if layout is not None:
        open_storage(layout)
    try:
        require_checkpoint_place(root.parent, host, is_recorded=request.checkpoints_recorded)
    except Unavailable:
        return  # the driver reports it
    earlier = any(query.location.startswith(f"{root}/") for query in request.checkpoints)
    own_checkpoints(root, user, may_create=not earlier)
