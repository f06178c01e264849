"""Makes the environment that the tests of the Airflow provider run in: ``python -m tools.airflow_environment``.

``requirements-airflow.lock`` locks Airflow and what the provider and Emberkeep's client import; PySpark is not among
it. ``requirements-airflow-spark.lock`` adds Airflow's SparkSubmitOperator. Emberkeep and the provider are installed
from this tree, without dependencies.
"""

from __future__ import annotations

from pathlib import Path

from tools.locked_environment import ROOT, LockedEnvironment, install

PROVIDER = ROOT / "airflow_provider"
_LOCK, _SPARK_LOCK = ROOT / "requirements-airflow.lock", ROOT / "requirements-airflow-spark.lock"


def _fill(python: Path) -> None:
    install(python, "--require-hashes", "-r", str(_LOCK))
    install(python, "--require-hashes", "--no-deps", "-r", str(_SPARK_LOCK))
    install(python, "--no-build-isolation", "--no-deps", "-e", str(ROOT), "-e", str(PROVIDER))


AIRFLOW = LockedEnvironment(
    "airflow",
    (
        _LOCK,
        _SPARK_LOCK,
        PROVIDER / "pyproject.toml",
        ROOT / "src" / "emberkeep" / "__init__.py",  # the version
    ),
    _fill,
)

if __name__ == "__main__":
    print(AIRFLOW.make())
