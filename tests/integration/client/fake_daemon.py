"""Stands in for ``python -m emberkeep.daemons.<module>``: announces itself and serves just enough, without Spark.

The first argument is the module, the others are a daemon's own. Task managers show themselves to the JobManager by a
file each below the state directory. ``FAKE_DAEMON`` (JSON) tells modules to misbehave.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from emberkeep.client.clusters.discovery import read_token
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, task_manager_info


def main() -> int:
    """Run as told until SIGTERM, a task manager until SIGQUIT (or the end of standard input, where it is a pipe)."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("module")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--config")
    parser.add_argument("-D", action="append", default=[], dest="definitions")
    given = parser.parse_args()
    settings = dict(definition.split("=", 1) for definition in given.definitions)
    behaviour = json.loads(os.environ.get("FAKE_DAEMON", "{}")).get(given.module, {})
    if "error" in behaviour:
        print(json.dumps({"error": behaviour["error"], "hint": "do something"}), flush=True)
        return 1
    if "exit" in behaviour:
        print("some trouble", file=sys.stderr, flush=True)
        return int(behaviour["exit"])
    if behaviour.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    if given.module == "taskmanager":
        return run_task_manager(given.state_dir, settings, behaviour)
    return run_job_manager(given.state_dir, settings)


def run_job_manager(state: Path, settings: dict[str, str]) -> int:
    token = state / "token"
    token.write_text(TOKEN)
    assert read_token(token) == TOKEN
    fake = FakeJobManager()
    with fake.serving(int(settings.get("rest.port", "0"))):
        print(json.dumps({"url": fake.url, "token_file": str(token)}), flush=True)
        asyncio.run(watch(state, fake))
    return 0


async def watch(state: Path, fake: FakeJobManager) -> None:
    """Look at the registrations until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if not os.isatty(0) and sys.stdin.readable() and Path("/proc/self/fd/0").readlink().name.startswith("pipe:"):
        loop.add_reader(0, lambda: stop.set() if not os.read(0, 100) else None)
    while not stop.is_set():
        files = sorted((state / "registered").glob("*.json"))
        fake.task_managers = [task_manager_info(**json.loads(file.read_text())) for file in files]
        await asyncio.sleep(0.02)


def run_task_manager(state: Path, settings: dict[str, str], behaviour: dict[str, Any]) -> int:
    if signal.getsignal(signal.SIGQUIT) is not signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, lambda *_: sys.exit(0))
    name = settings["taskmanager.resource-id"]
    directory = Path(settings["process.taskmanager.working-dir"])
    (directory / "settings.json").write_text(json.dumps(settings))
    if behaviour.get("leaves_executor"):
        # As a task manager starts executors: in a session of their own.
        environ = {**os.environ, "SPARK_LOCAL_DIRS": str(directory / "jobs" / "local")}
        child = subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True)
        (directory / "executor.pid").write_text(str(child.pid))
    registered = state / "registered"
    registered.mkdir(exist_ok=True)
    temporary = registered / f"{name}.tmp"
    temporary.write_text(json.dumps({"name": name, "pid": os.getpid()}))
    temporary.rename(registered / f"{name}.json")
    print(json.dumps({"url": "http://127.0.0.1:1", "token_file": ""}), flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
