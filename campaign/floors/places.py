"""Places with little of a resource: small file systems and memory groups. They need root, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup/memory")
"""Of cgroup v1: the search needs a hierarchy in which any group may hold processes."""


@contextlib.contextmanager
def small_disk(directory: Path, kib: int) -> Iterator[None]:
    """Mount a file system in memory with ``kib`` KiB at a new ``directory``."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextlib.contextmanager
def memory_group(mib: int) -> Iterator[Path]:
    """Make a memory group whose processes may use ``mib`` MiB together, without swap."""
    group = GROUPS / f"emberkeep-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(mib * 1024**2))
        with contextlib.suppress(OSError):  # the kernel may have been built without it
            (group / "memory.memsw.limit_in_bytes").write_text(str(mib * 1024**2))
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError, OSError):
                (GROUPS / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):  # a process that is ending still counts
            group.rmdir()


def is_possible() -> bool:
    """True if this process may make such places."""
    return os.geteuid() == 0 and (GROUPS / "cgroup.procs").exists()
