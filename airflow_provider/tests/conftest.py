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

    def __init__(self, map_index: int = -1, max_tries: int = 0) -> None:
        self.dag_id, self.run_id, self.task_id, self.map_index = "etl", "run-1", "count", map_index
        self.max_tries = max_tries
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value


class Task:
    """A task instance over its tries: ``context`` begins the next one. It has as many retries as its operator."""

    def __init__(self, folder: Path, map_index: int = -1) -> None:
        self.store = Store()
        self._tries = self._max_tries = 0
        self._folder, self._map_index = folder, map_index

    def clear(self) -> None:
        """Let it run again, as Airflow does: the limit of its tries grows."""
        self._max_tries = self._tries

    def context(self, retries: int = 0) -> dict[str, Any]:
        """``retries``: those of the operator."""
        self._tries += 1
        dag = SimpleNamespace(fileloc=str(self._folder / "dag.py"))
        instance = Instance(self._map_index, self._max_tries + retries)
        return {"ti": instance, "task_state_store": self.store, "dag": dag, "ds": "2026-11-26"}


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
