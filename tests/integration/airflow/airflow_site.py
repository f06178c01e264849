"""A real Airflow on loopback: its server, scheduler with worker processes, triggerer and DAG processor."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import psutil

from emberkeep.client.clusters.discovery import local_endpoint
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tools.airflow_environment import AIRFLOW

DAG = "etl"
_PARTS = ("api-server", "dag-processor", "scheduler", "triggerer")
_LOG_TAIL = 3000  # characters


def airflow_python() -> Path:
    """The interpreter of Airflow's environment."""
    found = AIRFLOW.python()
    assert found is not None, "`make airflow` makes the environment"
    return found


def settings(home: Path) -> dict[str, str]:
    """Variables of every Airflow process: its own home, nothing sent to anyone, no examples."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def connection_to(cluster: Cluster) -> dict[str, Any]:
    """The connection with which Airflow reaches a cluster."""
    endpoint = local_endpoint(cluster.record, cluster.shell.state)
    return {"conn_type": "emberkeep", "host": endpoint.url, "password": endpoint.token, "extra": {"ca": endpoint.ca}}


class AirflowSite:
    """``up`` starts it; ``close`` ends all that was started."""

    def __init__(self, home: Path, connection: dict[str, Any]) -> None:
        """``connection``: of the id ``emberkeep_default``."""
        home.mkdir()
        self.home, self.dags = home, home / "dags"
        self.dags.mkdir()
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: set[psutil.Process] = set()
        self._token = ""
        server, logs, trigger_logs = _free_ports(3)
        self.url = f"http://127.0.0.1:{server}"
        self._environment = settings(home) | {
            "AIRFLOW_CONN_EMBERKEEP_DEFAULT": json.dumps(connection),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(server),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__FERNET_KEY": "",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(logs),
            # A lost worker is noticed soon. One on a busy machine is not taken for lost: its job would be canceled.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
        }

    # --- processes --------------------------------------------------------------------------------------------------

    def up(self) -> None:
        self._run("db", "migrate")
        for part in _PARTS:
            self.start(part)
        until(self._is_ready, self.story)

    def start(self, part: str) -> None:
        with (self.home / f"{part}.log").open("ab") as log:
            self._parts[part] = subprocess.Popen(
                self._command(part),
                env=self._environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def lose(self, part: str) -> None:
        """SIGKILL to a part and to all that it has started, as if its machine were gone."""
        started = self._parts.pop(part)
        lost = self._tree(started)
        for process in lost:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        started.wait(60)
        psutil.wait_procs(lost, timeout=60)

    def worker(self, task: str) -> list[psutil.Process]:
        """The worker process that runs a task, and below it the task's own process."""
        number = self.tasks()[task]["id"]
        # The task's own process keeps the title of the worker from which it was forked.
        titled = [process for process in self._tree(self._parts["scheduler"]) if number in _title(process)]
        (worker,) = [process for process in titled if process.parent() not in titled]
        return [worker, *worker.children(recursive=True)]

    def lose_task(self, task: str, *, whole_worker: bool) -> None:
        """SIGKILL to the task's own process; ``whole_worker``: also to the worker process above it, which is first."""
        worker, *below = self.worker(task)
        assert below
        for process in [worker, *below] if whole_worker else below:
            process.kill()

    def close(self) -> None:
        for part in list(self._parts):
            self.lose(part)
        left = [process for process in self._seen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        for process in left:
            process.kill()
        assert not left, f"processes of Airflow outlived those that started them: {left}"

    # --- what a user sees -------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any] | None:
        """The DAG's only run; None before it begins."""
        runs = self._api(f"/dags/{DAG}/dagRuns")["dag_runs"]
        assert len(runs) <= 1
        return runs[0] if runs else None

    def tasks(self) -> dict[str, dict[str, Any]]:
        """The task instances of the run, by task; those of a mapped task as "task[index]"."""
        run = self.run()
        if run is None:
            return {}
        found = self._api(f"{_run_path(run)}/taskInstances")["task_instances"]
        return {
            task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]": task
            for task in found
        }

    def of_task(self, task: str, what: str) -> Any:
        """Return a resource of a task instance: "logs/1", "links", "xcomEntries/job_id"."""
        run = self.run()
        assert run is not None
        return self._api(f"{_run_path(run)}/taskInstances/{task}/{what}")

    def job_id(self, task: str, index: int = -1) -> str | None:
        """The job that the task's try has chosen; None before that. ``index``: of a mapped task."""
        with suppress(OSError):
            return str(self.of_task(task, f"xcomEntries/job_id?map_index={index}")["value"])
        return None

    def log(self, task: str, attempt: int) -> list[str]:
        """The lines of one try of a task."""
        content = self.of_task(task, f"logs/{attempt}?full_content=true")["content"]
        return [str(line.get("event", "")) if isinstance(line, dict) else str(line) for line in content]

    def triggers_started(self, task: str) -> int:
        """How often triggerers have begun to run the trigger of the task's current try."""
        with suppress(OSError):
            lines = self.log(task, self.tasks()[task]["try_number"])
            return sum(line.startswith("trigger ") and line.endswith(" starting") for line in lines)
        return 0

    def mark_failed(self, task: str) -> None:
        run = self.run()
        assert run is not None
        self._api(f"{_run_path(run)}/taskInstances/{task}", "PATCH", {"new_state": "failed"})

    def clear(self, task: str) -> None:
        run = self.run()
        assert run is not None
        asked = {"dry_run": False, "task_ids": [task], "dag_run_id": run["dag_run_id"], "only_failed": False}
        self._api(f"/dags/{DAG}/clearTaskInstances", "POST", asked)

    def story(self) -> str:
        """All that helps to see why Airflow did something else."""
        parts = [f"--- {part}\n{(self.home / f'{part}.log').read_text()[-_LOG_TAIL:]}" for part in _PARTS]
        tries = [
            f"--- {path.relative_to(self.home)}\n{path.read_text()[-_LOG_TAIL:]}"
            for path in sorted((self.home / "logs").glob("dag_id=*/**/*.log*"))
        ]
        with suppress(OSError, KeyError):
            parts += [f"{name}: {task['state']}, try {task['try_number']}" for name, task in self.tasks().items()]
        return "\n".join((*parts, *tries))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return bool(self._api("/monitor/health")["scheduler"]["status"] == "healthy")
        return False

    def _tree(self, part: subprocess.Popen[bytes]) -> list[psutil.Process]:
        root = psutil.Process(part.pid)
        tree = [root, *root.children(recursive=True)]
        self._seen |= set(tree)
        return tree

    def _command(self, *words: str) -> list[str]:
        return [str(airflow_python()), "-m", "airflow", *words]

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            self._command(*words), env=self._environment, cwd=self.home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"airflow {' '.join(words)}: {done.stdout}\n{done.stderr}"

    def _api(self, path: str, method: str = "GET", body: object = None) -> Any:
        if not self._token:
            self._token = _answer(Request(f"{self.url}/auth/token"))["access_token"]
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return _answer(Request(f"{self.url}/api/v2{path}", data, headers, method=method))


def _title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(process.cmdline())
    return ""


def _run_path(run: dict[str, Any]) -> str:
    return f"/dags/{DAG}/dagRuns/{quote(run['dag_run_id'], safe='')}"


def _answer(request: Request) -> Any:
    try:
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise OSError(f"{request.full_url}: {error.code} {error.read().decode()[:500]}") from None
    except URLError as error:
        raise OSError(f"{request.full_url}: {error.reason}") from None


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
