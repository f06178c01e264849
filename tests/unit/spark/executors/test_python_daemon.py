"""The daemon of Python workers: it imports the installed PySpark, and works like PySpark's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from emberkeep.spark.executors.python_daemon import MODULE, without_archives
from emberkeep.spark.jvm.executor_command import ExecutorLaunch, backend_options

_PACKAGE = Path(pyspark.__file__).parent
_FOLDER = str(_PACKAGE.parent)
_ARCHIVE = str(_PACKAGE / "python" / "lib" / "pyspark.zip")


def test_archives_of_the_installed_package_are_taken_off_the_path() -> None:
    jar = str(_PACKAGE / "jars" / "spark-core_2.13-4.3.0.jar")
    assert without_archives([_ARCHIVE, jar, "/usr/lib/python3.11", _FOLDER]) == ["/usr/lib/python3.11", _FOLDER]


@pytest.mark.parametrize(
    "entry",
    [
        "/opt/spark/python/lib/pyspark.zip",  # another Spark's, such as that of SPARK_HOME
        "/job/files/deps.zip",
        "/job/files/udf.jar",
        "",
    ],
)
def test_other_entries_stay(entry: str) -> None:
    assert without_archives([entry, _FOLDER]) == [entry, _FOLDER]


def test_archives_stay_without_an_installed_package() -> None:
    assert without_archives([_ARCHIVE, "/usr/lib/python3.11"]) == [_ARCHIVE, "/usr/lib/python3.11"]


def test_the_daemon_serves_from_the_installed_package() -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-v", "-m", MODULE, "pyspark.worker"],
        env={"PYTHONPATH": _ARCHIVE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, imports = process.communicate(b"", timeout=120)  # the end of its input ends the daemon
    assert len(out) >= 4, "the daemon has told its port"
    imported = [line for line in imports.decode(errors="replace").splitlines() if "pyspark.daemon" in line]
    assert imported
    assert not [line for line in imported if "pyspark.zip" in line]


@pytest.mark.parametrize(("named", "has_own"), [("", True), ("/venv/bin/python", True), ("./env/bin/python", False)])
def test_other_interpreters_keep_the_daemon_of_pyspark(tmp_path: Path, named: str, has_own: bool) -> None:
    launch = ExecutorLaunch(
        driver_url="spark://d@h:1",
        executor_id="1",
        host="127.0.0.1",
        cores=1,
        heap_mb=512,
        app_id="app-1",
        java=Path("java"),
        java_options=(),
        extra_class_path="",
        python="/venv/bin/python",
        environ={},
        work_dir=tmp_path / "work",
        local_dir=tmp_path / "local",
        temporary_dir=tmp_path / "tmp",
        auth_secret=None,
        named_python=named,
    )
    assert (f"-Dspark.python.daemon.module={MODULE}" in backend_options(launch)) is has_own
