"""Drivers and stub executors of the histories compare the files that task managers give them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaign.processes.transfers import lab_files
from campaign.processes.transfers.runtime import starting, stub_java
from campaign.processes.transfers.seen import judge_seen, read_seen
from emberkeep.client.clusters import daemon_process
from emberkeep.client.clusters.daemon_process import DaemonCommand
from emberkeep.daemons.driver.link import JobMasterThread
from emberkeep.daemons.records.driver_spec import write_spec
from emberkeep.jobmaster.ports import Application
from emberkeep.jobs.model import ArtefactRole
from emberkeep.spark.java import MINIMUM_JAVA, find_java
from tests.unit.formats.golden_samples import DRIVER_SPEC

GOOD, OTHER = b"as it was submitted", b"as it is"
FILES = {name: hashlib.sha256(GOOD).hexdigest() for name in ("good", "other", "missing")}


def test_an_executor_runs_in_place_of_java(tmp_path: Path) -> None:
    home = stub_java(tmp_path / "java")
    java = find_java({"JAVA_HOME": str(home)})
    assert (java.major, java.executable) == (MINIMUM_JAVA, home / "bin" / "java")
    place, work = tmp_path / "job", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    (place / "files").write_text(json.dumps(FILES))
    (work / "good").write_bytes(GOOD)
    (work / "other").write_bytes(OTHER)
    executor = subprocess.Popen(
        [str(java.executable), "-cp", "any", "Backend", "--executor-id", "7", "--cores", "1"],
        cwd=work,
        env={"LAB_PLACE": str(place), "LAB_ATTEMPT": "3"},
    )
    try:
        seen = place / "seen"
        while not seen.exists() or seen.read_bytes().count(b"\n") < len(FILES):
            with pytest.raises(subprocess.TimeoutExpired):
                executor.wait(0.01)
    finally:
        executor.kill()
        executor.wait()
    found = read_seen(seen.read_bytes() + b"half a line")
    assert [(each.attempt, each.executor, each.pid, each.name, each.whole) for each in found] == [
        (3, "7", executor.pid, "good", True),
        (3, "7", executor.pid, "other", False),
        (3, "7", executor.pid, "missing", False),
    ]
    assert [each.partition(",")[0] for each in judge_seen(found)] == [
        "executor 7 of attempt 3 has not found other as it was submitted",
        "executor 7 of attempt 3 has not found missing as it was submitted",
    ]


def test_a_driver_compares_its_files_and_asks_for_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Application] = []
    monkeypatch.setattr(JobMasterThread, "application_started", lambda _, application: asked.append(application))
    monkeypatch.setenv("EMBERKEEP_JOB_ATTEMPT", "3")
    directory, place = tmp_path / "files", tmp_path / "job"
    directory.mkdir()
    place.mkdir()
    (directory / "good").write_bytes(GOOD)
    (directory / "other").write_bytes(OTHER)
    (place / "files").write_text(json.dumps(FILES))
    source = Path(lab_files.__file__).read_text()
    (directory / "lab_files.py").write_text(source)
    module = importlib.util.spec_from_file_location("submitted_lab_files", directory / "lab_files.py")
    assert module is not None
    assert module.loader is not None
    loaded: Any = importlib.util.module_from_spec(module)
    module.loader.exec_module(loaded)

    # As in the process of a driver.
    write_spec(tmp_path / "spec.record", DRIVER_SPEC)
    monkeypatch.setattr(sys, "orig_argv", [*sys.orig_argv, str(tmp_path / "spec.record")])
    job_master = JobMasterThread.__new__(JobMasterThread)
    deeds: list[tuple[str, dict[str, object]]] = []
    loaded.take(place, lambda what, **details: deeds.append((what, details)))
    del job_master
    assert deeds == [("file", {"whole": whole}) for whole in (True, False, False)]
    (application,) = asked
    assert application.requirement.count == lab_files.EXECUTORS
    assert application.environ == {"LAB_PLACE": str(place), "LAB_ATTEMPT": "3"}
    assert application.artefacts == tuple(
        each for each in DRIVER_SPEC.graph.artefacts if each.role is not ArtefactRole.SCRIPT
    )


def test_only_task_managers_have_the_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/of/this/machine")
    show = "import os, time; print(os.environ['JAVA_HOME'], flush=True); time.sleep(60)"
    monkeypatch.setattr(daemon_process, "daemon_program", lambda _: [sys.executable, "-c", show])
    shown = {}
    for module in ("taskmanager", "jobmanager"):
        command = DaemonCommand(module, (), tmp_path / module)
        daemon = starting(tmp_path / "java")(command)
        try:
            while not (line := command.out.read_text()).endswith("\n"):
                assert daemon.process.poll() is None
        finally:
            daemon.kill()
        shown[module] = line.strip()
    assert shown == {"taskmanager": str(tmp_path / "java"), "jobmanager": "/of/this/machine"}
