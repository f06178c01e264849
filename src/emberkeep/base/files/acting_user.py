"""A thread of a process of root that opens and changes files as another user of the operating system.

The kernel checks each access to a file against the thread's file-system user, file-system group and supplementary
groups (setfsuid(2), setfsgid(2), setgroups(2)). Other threads are not affected, and descriptors that are already open
stay usable. The C library applies ``setgroups`` to all threads, so this module makes that system call directly.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from emberkeep.base.errors import Fatal
from emberkeep.base.processes.os_user import OsUser

log = structlog.get_logger(__name__)

# Numbers of the system call setgroups(2).
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
_NOBODY: Final = 2**32 - 1  # an id that changes nothing, to ask for the present one


@dataclass(frozen=True)
class _Identity:
    """Whose rights a thread uses to reach files."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class _Thread(threading.local):
    own: _Identity | None = None  # the process's, while the thread acts as somebody
    user: _Identity | None = None  # as whom the thread acts


_thread = _Thread()
_libc = ctypes.CDLL(None, use_errno=True)


def check_acting_users() -> None:
    """Raise Fatal if threads of this process cannot act as other users."""
    if platform.system() != "Linux" or platform.machine() not in _SETGROUPS:
        raise Fatal(f"threads cannot act as other users on {platform.system()} on {platform.machine()}")
    if os.geteuid() != 0:
        raise Fatal("threads can act as other users only in a process of root")


@contextlib.contextmanager
def acting_as(user: OsUser) -> Iterator[None]:
    """Open and change files as ``user`` in this thread, for the time of the context. Do not use across ``await``.

    Raises Fatal if the thread cannot become the user; it is itself again then. Ends the process if the thread cannot
    become itself again, because its later work would have another user's rights.
    """
    with _acting(_Identity(user.uid, user.gid, user.groups)):
        yield


@contextlib.contextmanager
def acting_as_itself() -> Iterator[None]:
    """Open files with the process's own rights in this thread, also within ``acting_as``."""
    if _thread.own is None:
        yield
        return
    with _acting(_thread.own):
        yield


@contextlib.contextmanager
def _acting(identity: _Identity) -> Iterator[None]:
    own, before = _thread.own, _thread.user
    itself = own or _Identity(os.geteuid(), os.getegid(), tuple(os.getgroups()))
    try:
        _become(identity, itself)
        _thread.own, _thread.user = itself, identity
        yield
    finally:
        _return_to(before or itself, itself)
        _thread.own, _thread.user = own, before


def _become(identity: _Identity, itself: _Identity) -> None:
    """Change the thread's identity. Raises Fatal."""
    _libc.setfsuid(itself.uid)  # with root's capabilities, a user's groups can be set
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        check_acting_users()
    groups = (ctypes.c_uint32 * len(identity.groups))(*identity.groups)
    if _libc.syscall(ctypes.c_long(number or 0), ctypes.c_long(len(groups)), groups) != 0:
        raise Fatal(f"a thread cannot take the groups of user id {identity.uid}: {os.strerror(ctypes.get_errno())}")
    _libc.setfsgid(identity.gid)
    _libc.setfsuid(identity.uid)
    # Both calls report no error.
    if _present(_libc.setfsuid) != identity.uid or _present(_libc.setfsgid) != identity.gid:
        raise Fatal(f"a thread cannot act as user id {identity.uid}", hint="run the task manager as root")


def _present(call: ctypes._NamedFuncPointer) -> int:
    return int(call(ctypes.c_uint32(_NOBODY))) & _NOBODY


def _return_to(identity: _Identity, itself: _Identity) -> None:
    try:
        _become(identity, itself)
    except BaseException:
        log.exception("a thread keeps the rights of another user: the process ends")
        os._exit(1)
