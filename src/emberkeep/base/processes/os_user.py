"""An operating system user that a process is started as, instead of the user of this process."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import TypedDict

from emberkeep.base.errors import InvalidInput

PRIVATE_UMASK = 0o077
_PATHS = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True)
class OsUser:
    """A user of this machine. ``groups``: ids of all groups that the user is in, ``gid`` included."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def environ(self) -> dict[str, str]:
        """Return the variables that name the user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


class Credentials(TypedDict):
    """The arguments of ``subprocess.Popen`` that decide which user a process runs as."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None
    umask: int


def credentials_of(user: OsUser | None) -> Credentials:
    """Return the arguments that start a process as ``user``; None: as the user of this process, with its umask."""
    if user is None:
        return Credentials(user=None, group=None, extra_groups=None, umask=-1)
    return Credentials(user=user.uid, group=user.gid, extra_groups=list(user.groups), umask=PRIVATE_UMASK)


def environment_for(user: OsUser | None) -> dict[str, str] | None:
    """Return the environment of a short helper process of ``user``, with nothing of this process but its paths.

    None, for this process's user, stands for its whole environment.
    """
    if user is None:
        return None
    return {**{name: os.environ[name] for name in _PATHS if name in os.environ}, **user.environ()}


def find_user(name: str, key: str) -> OsUser:
    """Return the user with this name. ``key``: the option that names it. Raises InvalidInput (unknown, or root)."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise InvalidInput(
            f"{key}: there is no user {name!r} on this machine",
            field=key,
            hint=f"create it, for example with `useradd --system {name}`, or name another user",
        ) from None
    if entry.pw_uid == 0:
        raise InvalidInput(
            f"{key}: {name!r} is root, who can read the files of all jobs",
            field=key,
            hint="name a user without privileges",
        )
    groups = tuple(sorted({entry.pw_gid, *os.getgrouplist(name, entry.pw_gid)}))
    return OsUser(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)
