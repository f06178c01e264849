"""Whether a task manager may make control groups, and where."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from emberkeep.adapters.cgroups import version1, version2
from emberkeep.adapters.cgroups.files import GroupFiles, KernelFiles
from emberkeep.adapters.cgroups.mounts import OwnGroups, groups_of
from emberkeep.adapters.cgroups.port import Group, Place, Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.base.configuration.options.task_managers import CGROUPS
from emberkeep.base.errors import Fatal

log = structlog.get_logger(__name__)

_TRIED = "tried"
_TRIED_SHARE = Share(cores=1, memory_mb=64)
_WAITS = "import sys; sys.stdin.read()"
_UNITS = (".service", ".scope")
_DELEGATED = ("user.delegate", "trusted.delegate")  # attributes that systemd gives to the groups of such units
_HINT = (
    "let the service manager hand its control group over to the task manager (systemd: `Delegate=yes`, which the "
    f"units of `emberkeep system install` have), or set {CGROUPS.key}: off"
)


class _Impossible(Exception):
    """Why no control groups can be made."""


@dataclass(frozen=True)
class OpenedGroups:
    """``why_none``: why no groups are made; "" if they are."""

    groups: ProcessGroups
    version: int = 0
    why_none: str = ""

    def in_force(self, *, limits_memory: bool) -> str:
        """Return what the groups bound, for people."""
        if self.why_none:
            return f"none: {self.why_none}"
        return f"version {self.version}: {'memory, and CPU by cores' if limits_memory else 'CPU by cores'}"


def open_groups(
    setting: str,
    directory: Path,
    cores: int,
    files: GroupFiles | None = None,
    own: Callable[[], OwnGroups] = lambda: groups_of("self"),
) -> OpenedGroups:
    """Make the place for the groups of the task manager that works in ``directory``. Blocks.

    ``setting``: of ``taskmanager.cgroups``. ``cores``: that the task manager offers. With version 2, this moves the
    calling process into a group of its own. Raises Fatal if groups are required and cannot be made.
    """
    files = files or KernelFiles()
    find = partial(find_group, files=files)
    if setting == "off":
        return OpenedGroups(ProcessGroups(None, find), why_none=f"{CGROUPS.key} is off")
    try:
        place = _place(own(), _tag(directory), cores, files, by_choice=setting == "required")
    except (_Impossible, OSError, ValueError) as error:
        if setting == "required":
            raise Fatal(f"{CGROUPS.key} is required, but no control groups can be made: {error}", hint=_HINT) from error
        log.warning("drivers and executors get no control groups", reason=str(error))
        return OpenedGroups(ProcessGroups(None, find), why_none=str(error))
    _clear(place)
    return OpenedGroups(ProcessGroups(place, find), place.version)


def _clear(place: Place) -> None:
    """Remove the groups of processes that ended while no task manager ran. What cannot be read now stays."""
    try:
        for name, group in place.unused().items():
            if group.memory_kills():
                log.warning("the kernel ended a process that exceeded its memory, with no task manager", process=name)
            group.remove()
    except OSError as error:
        log.warning("cannot remove all control groups that are no longer used", reason=str(error))


def _place(own: OwnGroups, name: str, cores: int, files: GroupFiles, *, by_choice: bool) -> Place:
    """Return a place that was tried. Raises _Impossible, OSError, ValueError."""
    place: Place
    if own.v2 is not None and set(files.read(own.v2 / "cgroup.controllers").split()) >= version2.CONTROLLERS:
        if not by_choice and (reason := _why_not_by_itself(own, version=2)):
            raise _Impossible(reason)
        place = version2.PlaceV2(version2.enable_below(own.v2, files) / name, files, cores)
    elif "memory" in own.v1 and "cpu" in own.v1:
        if not by_choice and (reason := _why_not_by_itself(own, version=1)):
            raise _Impossible(reason)
        place = version1.PlaceV1(own.v1["memory"] / name, own.v1["cpu"] / name, files, cores)
    else:
        where = f" in {own.v2}" if own.v2 is not None else ""
        raise _Impossible(f"the controllers memory and cpu are not available{where}")
    try:
        _try(place)
    except BaseException:
        place.close()
        raise
    return place


def _try(place: Place) -> None:
    """Raise OSError if a process cannot be limited there."""
    group = place.make(_TRIED)
    try:
        group.limit(_TRIED_SHARE)
        with subprocess.Popen((sys.executable, "-I", "-S", "-c", _WAITS), stdin=subprocess.PIPE) as process:
            group.join(process.pid)
    finally:
        group.remove()


def _why_not_by_itself(own: OwnGroups, *, version: int) -> str:
    """Return why only an explicit setting permits groups below this process's own: systemd manages that one."""
    if version == version1.PlaceV1.version:
        managed = next((path for path in own.v1.values() if path.suffix in _UNITS), None)
        if managed is None or _is_delegated(own.v1.get("name=systemd")):
            return ""
        return f"systemd manages {managed} and has not delegated it"
    places = () if own.v2 is None else (own.v2, own.v2.parent)
    managed = next((path for path in places if path.suffix in _UNITS or _is_delegated(path)), None)
    if managed is None:
        return ""
    return (
        f"systemd manages {managed}, and starts a service again beside processes that go on in groups of version 2 "
        f"only if the unit is that of `emberkeep system install`; if it is, set {CGROUPS.key}: required"
    )


def _is_delegated(path: Path | None) -> bool:
    if path is None:
        return False
    for attribute in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(path, attribute) == b"1":
                return True
    return False


def _tag(directory: Path) -> str:
    """Return the name of the place: task managers that were started in the same group have different ones."""
    return f"emberkeep-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}"


def find_group(marker: str, pid: int, files: GroupFiles | None = None) -> Group | None:
    """Return the group that was made for the process with this marker, if the process with this pid is in it."""
    files = files or KernelFiles()
    try:
        own = groups_of(pid).of(marker)
    except (OSError, ValueError):
        return None  # the process has ended
    if own.v2 is not None:
        return version2.GroupV2(own.v2, files)
    return version1.group_from(own.v1, files)
