"""Environments of tests that have a lock of their own, beside that of the project: their packages must not mix."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_STAMP = ".made"
_PIP = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input", "--no-compile")


@dataclass(frozen=True)
class LockedEnvironment:
    """``sources``: what it is made from; it is made again when they have changed. ``fill``: installs its packages."""

    name: str
    sources: tuple[Path, ...]
    fill: Callable[[Path], None]

    @property
    def directory(self) -> Path:
        digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in self.sources))
        return Path(sys.prefix) / f"{self.name}-{digest.hexdigest()[:16]}"

    def python(self) -> Path | None:
        """The environment's interpreter, if the environment is complete."""
        place = self.directory
        return place / "bin" / "python" if (place / _STAMP).exists() else None

    def make(self) -> Path:
        """Make the environment and return its interpreter. Environments of other sources are removed."""
        place = self.directory
        with (place.parent / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = self.python()
            if made is not None:
                return made
            for old in place.parent.glob(f"{self.name}-*"):
                shutil.rmtree(old)
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            self.fill(place / "bin" / "python")
            (place / _STAMP).touch()
            return place / "bin" / "python"


def install(python: Path, *words: str) -> None:
    """Run pip's install in an environment."""
    subprocess.run([str(python), *_PIP, *words], check=True)
