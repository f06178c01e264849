"""Reading and writing the files of control groups."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

PROCESSES = "cgroup.procs"


class GroupFiles(Protocol):
    """The file system of control groups. The kernel makes the files of a group when its directory is made."""

    def read(self, path: Path) -> str:
        """Raises OSError."""

    def write(self, path: Path, text: str) -> None:
        """Write to a file that exists. Raises OSError."""

    def make(self, path: Path) -> None:
        """Make a group, unless it exists. Raises OSError."""

    def remove(self, path: Path) -> None:
        """Remove a group without processes and without groups below. Raises OSError."""

    def below(self, path: Path) -> list[Path]:
        """Return the groups directly below a group; none if it does not exist."""


class KernelFiles:
    """Implements GroupFiles."""

    def read(self, path: Path) -> str:
        return path.read_text("ascii", "replace")

    def write(self, path: Path, text: str) -> None:
        # Without O_CREAT: the kernel does not let anyone make files here, and one that is missing is not supported.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def make(self, path: Path) -> None:
        path.mkdir(mode=0o755, exist_ok=True)

    def remove(self, path: Path) -> None:
        path.rmdir()

    def below(self, path: Path) -> list[Path]:
        try:
            return sorted(each for each in path.iterdir() if each.is_dir())
        except OSError:
            return []


def write_if_there(files: GroupFiles, path: Path, text: str) -> None:
    """Write to a file that some kernels do not have, such as those without swap. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        files.write(path, text)


def counter(files: GroupFiles, path: Path, name: str) -> int:
    """Return the number after ``name`` in a file of names and numbers; 0 if there is none."""
    try:
        found = (line.removeprefix(f"{name} ") for line in files.read(path).splitlines() if line.startswith(f"{name} "))
        return int(next(found, 0))
    except (OSError, ValueError):
        return 0


def processes_in(files: GroupFiles, path: Path) -> list[int]:
    """Return the processes in a group, without those in groups below. Raises OSError."""
    return [int(line) for line in files.read(path / PROCESSES).split()]


def remove_all(files: GroupFiles, path: Path) -> bool:
    """Remove a group with all groups below, which its processes may have made. Return False if one has a process."""
    removed = [remove_all(files, each) for each in files.below(path)]
    if not all(removed):
        return False
    try:
        files.remove(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
