"""File systems that are full, small or read-only, where this machine lets tests have them."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """A tmpfs of ``size``; skips the test where none may be mounted."""
    directory.mkdir()
    if os.geteuid() != 0 or not _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(directory)):
        pytest.skip("no file system may be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=60)


def make_read_only(directory: Path) -> None:
    """Of a ``small_disk``."""
    assert _mount("-o", "remount,ro", str(directory))


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], check=False, capture_output=True, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """This process may write no file of more than ``size`` bytes. Needs no privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
