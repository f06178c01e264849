"""Fetches Flink's jars, for its command line in long tests and for the peer of `bench`: ``python -m tools.flink_jar``.

``requirements-flink.lock`` names the package and its hash. It is too large for the development environment, and holds
much that nothing here needs: its libraries are kept of it, beside the environment's own files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

LOCK = Path(__file__).parent.parent / "requirements-flink.lock"
_KEPT = "deps/lib/*.jar"


def directory() -> Path:
    """Where the jars of this lock are kept."""
    return Path(sys.prefix) / "flink" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16] / "lib"


def kept() -> Path | None:
    """The jar with Flink's own classes, if it was fetched. The jars that it needs are beside it."""
    return next(iter(sorted(directory().glob("flink-dist-*.jar"))), None)


def fetch() -> Path:
    """Bring the jars here."""
    place = directory()
    place.parent.mkdir(parents=True, exist_ok=True)
    quiet = ("-qq", "--disable-pip-version-check")
    options = (*quiet, "--no-cache-dir", "--no-deps", "--no-build-isolation", "--require-hashes")
    with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", temporary, "-r", str(LOCK)]
        subprocess.run(command, check=True)
        (package,) = Path(temporary).glob("apache?flink?libraries-*.tar.gz")
        aside = Path(temporary) / "lib"
        aside.mkdir()
        with tarfile.open(package) as archive:
            for member in archive:
                if Path(member.name).match(_KEPT):
                    source = archive.extractfile(member)
                    if source is None:
                        sys.exit(f"{member.name} in {package.name} is not a file")
                    with (aside / Path(member.name).name).open("wb") as target:
                        shutil.copyfileobj(source, target)
        aside.rename(place)  # whole, or not there
    jar = kept()
    if jar is None:
        sys.exit(f"{package.name} has no jar of Flink's own classes")
    return jar


if __name__ == "__main__":
    print(kept() or fetch())
