"""Which control groups a process is in, as the kernel shows them below /proc."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class OwnGroups:
    """The directories of a process's groups. ``v1``: by controller. ``v2``: None if they cannot be seen from here."""

    v1: dict[str, Path]
    v2: Path | None

    def of(self, name: str) -> OwnGroups:
        """Return those that are called ``name`` or are in a group of that name, as that group's directories."""
        v1 = {controller: found for controller, path in self.v1.items() if (found := _named(path, name)) is not None}
        return OwnGroups(v1, None if self.v2 is None else _named(self.v2, name))


def groups_of(pid: int | str, proc: Path = PROC) -> OwnGroups:
    """Return the groups of a process. Raises OSError."""
    return parse(
        (proc / str(pid) / "cgroup").read_text("utf-8", "surrogateescape"),
        (proc / "self" / "mountinfo").read_text("utf-8", "surrogateescape"),
    )


def parse(cgroup: str, mountinfo: str) -> OwnGroups:
    """Return the groups of a process. ``cgroup``: its own file. ``mountinfo``: the mounts that this process sees."""
    paths: dict[str, str] = {}  # "": version 2
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        kind, _, rest = file_system.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        options = rest.partition(" ")[2]
        root, point = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), each) for each in mount.split(" ")[3:5])
        if kind == "cgroup2" and v2 is None and "" in paths:
            v2 = _below(point, root, paths[""])
        for controller in options.split(",") if kind == "cgroup" else ():
            place = _below(point, root, paths[controller]) if controller in paths else None
            if place is not None:
                v1.setdefault(controller, place)
    return OwnGroups(v1, v2)


def _below(point: str, root: str, path: str) -> Path | None:
    """Return where the group ``path`` is, in a mount that shows the hierarchy from ``root`` on; None if nowhere."""
    shown = Path(path)
    if ".." in shown.parts or not shown.is_relative_to(root):
        return None  # it is outside of this process's namespace
    return Path(point) / shown.relative_to(root)


def _named(path: Path, name: str) -> Path | None:
    return next((each for each in (path, *path.parents) if each.name == name), None)
