"""Makes the environment that the tests of the Airflow provider run in: ``python -m tools.airflow_environment``.

``requirements-airflow.lock`` locks Airflow and what the provider and Emberkeep's client import; PySpark is not among
it. ``requirements-airflow-spark.lock`` adds Airflow's SparkSubmitOperator. Emberkeep and the provider are installed
from this tree, without dependencies. The environment is beside that of the project, as Airflow's dependencies are many
and must not mix with the project's own.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROVIDER = ROOT / "airflow_provider"
_LOCK, _SPARK_LOCK = ROOT / "requirements-airflow.lock", ROOT / "requirements-airflow-spark.lock"
_SOURCES = (
    _LOCK,
    _SPARK_LOCK,
    PROVIDER / "pyproject.toml",
    ROOT / "src" / "emberkeep" / "__init__.py",  # the version
)
_STAMP = ".made"
_PIP = ("install", "-qq", "--disable-pip-version-check", "--no-input", "--no-compile")


def directory() -> Path:
    """Where the environment of this lock is."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in _SOURCES))
    return Path(sys.prefix) / f"airflow-{digest.hexdigest()[:16]}"


def python() -> Path | None:
    """The environment's interpreter, if the environment is complete."""
    place = directory()
    return place / "bin" / "python" if (place / _STAMP).exists() else None


def make() -> Path:
    """Make the environment and return its interpreter. Environments of other locks are removed."""
    place = directory()
    with (place.parent / ".airflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = python()
        if made is not None:
            return made
        for old in place.parent.glob("airflow-*"):
            shutil.rmtree(old)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", *_PIP]
        subprocess.run([*pip, "--require-hashes", "-r", str(_LOCK)], check=True)
        subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(_SPARK_LOCK)], check=True)
        subprocess.run([*pip, "--no-build-isolation", "--no-deps", "-e", str(ROOT), "-e", str(PROVIDER)], check=True)
        (place / _STAMP).touch()
        return place / "bin" / "python"


if __name__ == "__main__":
    print(python() or make())
