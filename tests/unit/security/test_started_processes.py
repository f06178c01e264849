"""The processes that Emberkeep starts import nothing from the directory that they are started from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import emberkeep
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.spark.errors import ClassArchiveFailed, JavaNotFound
from emberkeep.spark.java import JavaRuntime, find_java
from emberkeep.spark.jvm import class_archive, driver_jvm
from emberkeep.spark.jvm.driver_command import plan_jvm
from emberkeep.spark.model import DriverSettings
from emberkeep.taskmanager.ports import ExecutorKey

pytestmark = pytest.mark.req("SEC-4")

SOURCES = Path(emberkeep.__file__).parent
REQUEST = StartExecutor(
    job_id=JobId("a" * 32),
    attempt=1,
    allocation_id=AllocationId("b" * 32),
    executor_id=ExecutorId("1"),
    driver_url="spark://driver",
    app_id="app-1",
    cores=1,
    heap_mb=100,
    java_options=(),
    extra_class_path="",
    environ={},
    auth_secret="",
    python_path=(),
)
KEY = ExecutorKey(job_id=REQUEST.job_id, attempt=1, allocation_id=REQUEST.allocation_id, executor_id=ExecutorId("1"))


def commands() -> Iterator[tuple[str, list[ast.expr]]]:
    """All sequences in Emberkeep's code that begin with this interpreter, with their place."""
    for path in SOURCES.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "sys.executable" in text else ():
            if isinstance(node, ast.List | ast.Tuple) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                yield f"{path}:{node.lineno}", node.elts[1:]


def test_every_command_with_our_interpreter_leaves_out_the_current_directory() -> None:
    found = dict(commands())
    assert len(found) >= 5
    assert {place for place, words in found.items() if ast.unparse(words[0]) not in ("'-P'", "'-I'")} == set(), (
        "-P leaves it out, and so does -I, which leaves out the environment as well"
    )


@pytest.fixture
def starts(tmp_path: Path) -> ProcessStarts:
    root = WorkingDirectory(tmp_path / "node")
    java = JavaRuntime(None, tmp_path / "java", 17)
    java.executable.touch()
    node = LaunchNode("tm", "127.0.0.1", root, tmp_path / "token", java, Configuration())
    return ProcessStarts(node, ProcessPlaces(root), None)


def started(starts: ProcessStarts, **changes: Any) -> tuple[dict[str, str], list[Path]]:
    """The environment of an executor, and the folders to which its workers have links."""
    request, _ = starts.executor(KEY, msgspec.structs.replace(REQUEST, **changes), ())
    links = sorted(path for path in Path(request.directory).iterdir() if path.is_symlink())
    return dict(request.environ), [link.readlink() for link in links]


def test_workers_find_safe_folders_after_their_own_modules(
    starts: ProcessStarts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, public = tmp_path / "own", tmp_path / "public"
    own.mkdir(mode=0o755)
    public.mkdir()
    public.chmod(0o777)
    monkeypatch.setenv("PYTHONPATH", f":{public}:{own}")
    environ, folders = started(starts, python_path=(str(public), str(own)), python_path_owner=0)
    assert (environ["PYTHONPATH"], folders) == (str(own), [own])


def test_a_driver_of_the_previous_release_still_gets_its_safe_folders(
    starts: ProcessStarts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, public = tmp_path / "own", tmp_path / "public"
    own.mkdir(mode=0o755)
    public.mkdir()
    public.chmod(0o777)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environ, folders = started(starts, python_path=(str(public), str(own)))
    assert (environ["PYTHONPATH"], folders) == (str(own), [])


def test_a_folder_that_no_file_system_can_have_ends_the_start_and_nothing_else(starts: ProcessStarts) -> None:
    for changes in ({"python_path": ("/a\0b",), "python_path_owner": 0}, {"environ": {"PYTHONPATH": "/a\0b"}}):
        with pytest.raises(Fatal, match=r"cannot prepare the executor.s directory: .*null"):
            started(starts, **changes)


def test_relative_folders_of_an_executor_are_in_its_own_directory(starts: ProcessStarts, tmp_path: Path) -> None:
    environ, _ = started(starts, environ={"PYTHONPATH": "./deps.zip"}, python_path_owner=0)
    directory = ProcessPlaces(WorkingDirectory(tmp_path / "node")).directory(KEY)
    assert environ["PYTHONPATH"] == str(directory / "work" / "deps.zip")


def test_python_workers_of_a_drivers_jvm_do_not_import_from_the_jobs_directory(tmp_path: Path) -> None:
    settings = DriverSettings(
        host="127.0.0.1",
        spark_conf={},
        scratch_dir=tmp_path,
        checkpoint_root="",
        secret=None,
        java=JavaRuntime(None, tmp_path / "java", 17),
        app_name="job",
        driver_memory_mb=512,
    )
    environ = driver_jvm.jvm_environment({}, plan_jvm({}, settings, {}), settings)
    assert environ["PYTHONSAFEPATH"] == "1"


def test_preparing_imports_nothing_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    mark = tmp_path / "ran"
    for name in ("emberkeep", "pyspark", "tempfile", "structlog"):
        (hostile / f"{name}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PATH", "/nowhere")
    java = JavaRuntime(None, tmp_path / "java", 17)
    java.executable.write_text("no java")
    environ = {"PYTHONPATH": ":.", "JAVA_HOME": str(tmp_path)}
    with pytest.raises(ClassArchiveFailed):
        class_archive._build(java, tmp_path, environ)
    assert not mark.exists()


def test_java_is_not_taken_from_where_others_can_put_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "java"
    planted.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    planted.chmod(0o755)
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JavaNotFound) as refused:
        find_java({"PATH": f":.:{tmp_path}"})
    assert f"not searched: {tmp_path} (other users can write to {tmp_path})" in refused.value.message
