"""A JobManager's API on loopback, and what Airflow hands to a task, without Airflow's own processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.client import follow, log_copy
from emberkeep_airflow import job_run
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager

SCRIPT = "print('hi')\n"


class Store(dict[str, Any]):
    """The state store of a task: it lives as long as the DAG run."""

    def set(self, key: str, value: Any, *, retention: object = None) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


class Instance:
    """One try of a task instance."""

    def __init__(self, map_index: int = -1) -> None:
        self.dag_id, self.run_id, self.task_id, self.map_index = "etl", "run-1", "count", map_index
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


class Task:
    """A task instance over its tries: ``context`` begins the next one."""

    def __init__(self, folder: Path, map_index: int = -1) -> None:
        self.store = Store()
        self._folder, self._map_index = folder, map_index

    def context(self) -> dict[str, Any]:
        dag = SimpleNamespace(fileloc=str(self._folder / "dag.py"))
        return {"ti": Instance(self._map_index), "task_state_store": self.store, "dag": dag, "ds": "2026-11-26"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    """The cluster of the connection ``emberkeep_default``."""
    monkeypatch.setattr(log_copy, "_OVER_PATIENCE", 0.2)
    monkeypatch.setattr(follow, "POLL", 0.02)
    monkeypatch.setattr(job_run, "POLL", 0.02)
    with FakeJobManager().serving() as server:
        url = server.url.removeprefix("http://")
        monkeypatch.setenv("AIRFLOW_CONN_EMBERKEEP_DEFAULT", f"emberkeep://:{TOKEN}@{url}/http?deployment=tests")
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the DAG's file."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "count.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def task(folder: Path) -> Task:
    return Task(folder)
