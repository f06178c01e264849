"""A directory tree that looks like the kernel's control groups and keeps their rules. Implements GroupFiles."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_V1 = {
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.memsw.limit_in_bytes": "9223372036854771712",
        "memory.max_usage_in_bytes": "0",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0",
        "memory.use_hierarchy": "1",
    },
    "cpu": {"cpu.shares": "1024"},
}
_V2 = {
    "memory": {
        "memory.max": "max",
        "memory.swap.max": "max",
        "memory.oom.group": "0",
        "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0",
    },
    "cpu": {"cpu.weight": "100"},
}


class GroupTree:
    """``root``: where version 2 is mounted, or the directory with one mount for each controller of version 1.

    ``without``: files that this kernel does not have. ``refused``: files that cannot be written.
    """

    def __init__(self, root: Path, version: int, *, without: tuple[str, ...] = ()) -> None:
        self.root = root
        self.version = version
        self.refused: set[str] = set()
        self._without = without
        self._existed: set[int] = set()
        if version == 1:
            for controller in _V1:
                self.make(root / controller)
        else:
            root.mkdir(parents=True, exist_ok=True)
            self._fill(root, {"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids"})

    def read(self, path: Path) -> str:
        if path.name == "cgroup.procs":
            return "\n".join(map(str, self.processes(path.parent)))
        if path.name == "cgroup.events":
            below = [path.parent, *(each for each in path.parent.rglob("*") if each.is_dir())]
            populated = any(self.processes(each) for each in below)
            return f"populated {int(populated)}\nfrozen 0\n"
        return path.read_text()

    def write(self, path: Path, text: str) -> None:
        if path.name in self.refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if path.name == "cgroup.procs":
            self._join(path, text)
        elif path.name == "cgroup.subtree_control":
            self._enable(path, text)
        else:
            path.write_text(text)

    def make(self, path: Path) -> None:
        if path.exists():
            return
        path.mkdir(parents=self.version == 1)
        if self.version == 1:
            controller = path.relative_to(self.root).parts[0]
            self._fill(path, {"cgroup.procs": "", **_V1[controller]})
        else:
            controllers = (path.parent / "cgroup.subtree_control").read_text().split()
            self._fill(path, {"cgroup.controllers": " ".join(controllers), "cgroup.subtree_control": ""})
            for controller in controllers:
                self._fill(path, _V2.get(controller, {}))

    def remove(self, path: Path) -> None:
        if self.below(path) or self.processes(path):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        for file in path.iterdir():
            file.unlink()
        path.rmdir()

    def below(self, path: Path) -> list[Path]:
        return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []

    def processes(self, path: Path) -> list[int]:
        """Return the processes in a group. Those that existed and have ended are in none."""
        pids = [int(line) for line in (path / "cgroup.procs").read_text().split()]
        return [pid for pid in pids if pid not in self._existed or Path(f"/proc/{pid}").exists()]

    def _join(self, path: Path, pid: str) -> None:
        if self.version == 2 and (path.parent / "cgroup.subtree_control").read_text().split():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        if Path(f"/proc/{pid}").exists():
            self._existed.add(int(pid))
        hierarchy = self.root if self.version == 2 else self.root / path.relative_to(self.root).parts[0]
        for each in hierarchy.rglob("cgroup.procs"):
            each.write_text("\n".join(line for line in each.read_text().split() if line != pid))
        path.write_text("\n".join([*path.read_text().split(), pid]))

    def _enable(self, path: Path, text: str) -> None:
        if self.processes(path.parent):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        wanted = {each.removeprefix("+") for each in text.split()}
        if not wanted <= set((path.parent / "cgroup.controllers").read_text().split()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        path.write_text(" ".join(sorted({*path.read_text().split(), *wanted})))
        for group in self.below(path.parent):
            (group / "cgroup.controllers").write_text(path.read_text())
            for controller in wanted:
                self._fill(group, _V2.get(controller, {}))

    def _fill(self, path: Path, files: dict[str, str]) -> None:
        for name, text in {"cgroup.procs": "", **files}.items():
            if name not in self._without and not (path / name).exists():
                (path / name).write_text(text)
