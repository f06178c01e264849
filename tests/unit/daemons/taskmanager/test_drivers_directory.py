"""Where a driver runs: in the directory that its job was submitted from, if it can."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.taskmanager import run_as
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts, _working_directory
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.daemons.taskmanager.run_as import entered
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.ports import DriverKey
from tests.unit.taskmanager.agent_bench import start_driver

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes as other users")
ANA = OsUser("ana", 60001, 60001, (60001,), "/nonexistent", "/bin/sh")


def submitted_from(directory: Path) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(working_directory=str(directory)))


@pytest.fixture
def _unprivileged(tmp_path: Path) -> Iterator[None]:
    tmp_path.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    yield
    os.seteuid(user)


@pytest.mark.usefixtures("_unprivileged")
def test_a_home_that_others_may_not_enter_is_not_used(tmp_path: Path) -> None:
    root = os.geteuid() != os.getuid()
    home = tmp_path / "home"
    if root:
        os.seteuid(0)
    (home / "project").mkdir(parents=True)
    home.chmod(0)
    if root:
        os.seteuid(65_534)
    try:
        assert _working_directory(submitted_from(home / "project"), None) is None
        assert _working_directory(submitted_from(home), None) is None
        assert _working_directory(submitted_from(home / "project"), ANA) == home / "project", "its user may enter it"
    finally:
        if root:
            os.seteuid(0)
        home.chmod(0o700)
    assert _working_directory(submitted_from(home / "project"), None) == home / "project"
    assert _working_directory(submitted_from(home / "missing"), None) is None


@as_root
def test_a_directory_that_does_not_answer_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="emberkeep-test-") as place:  # others may not enter ``tmp_path``
        hanging = Path(place) / "env"
        hanging.write_text("#!/bin/sh\nexec sleep 60\n")
        for path in (hanging, hanging.parent):
            path.chmod(0o755)
        monkeypatch.setattr(run_as, "_ENV", str(hanging))
        monkeypatch.setattr(run_as, "_ENTER_SECONDS", 0.2)
        with pytest.raises(OSError, match="timed out"):
            entered(tmp_path / "slow", ANA, Path(place))


def test_only_the_driver_itself_enters_the_directory_of_its_job(tmp_path: Path) -> None:
    """Its mount may hang, and whoever starts the driver there would hang with it."""
    root, wanted = WorkingDirectory(tmp_path / "state"), tmp_path / "project"
    wanted.mkdir()
    java = JavaRuntime(None, tmp_path / "java", 17)
    node = LaunchNode("tm", "127.0.0.1", root, tmp_path / "token", java, Configuration())
    starts = ProcessStarts(node, ProcessPlaces(root), None)
    asked = start_driver()
    for directory, enter in ((str(wanted), wanted), ("", None), (str(tmp_path / "missing"), None)):
        graph = msgspec.structs.replace(asked.graph, working_directory=directory)
        key = DriverKey(job_id=graph.job_id, attempt=asked.attempt)
        request = starts.driver(key, msgspec.structs.replace(asked, graph=graph), ())
        assert (request.directory, request.enter) == (ProcessPlaces(root).directory(key), enter)
