"""Slurm's commands as programs that keep the queue in a file: what the tests of the driver need of Slurm, and no more.

The programs answer like Slurm 22.05.8. A job runs at once on the first node that it does not exclude, unless another
job of its name is live.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = r"""#!@python@ -SE
import fcntl, json, sys, pathlib
here = pathlib.Path("@here@")
command, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([command, arguments]) + "\n")
if (here / "down").exists():
    sys.exit(f"{command}: error: Unable to contact slurm controller (connect failure)")
if (here / "hang").exists():
    import time
    time.sleep(1000)
lock = (here / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
state = json.loads((here / "state").read_text())
options = dict(each.partition("=")[::2] for each in arguments if each.startswith("--"))
live = ("PENDING", "RUNNING")

def settle():
    for job in state["jobs"]:
        others = [o for o in state["jobs"] if o["name"] == job["name"] and o["job_state"] == "RUNNING"]
        free = [n for n in state["nodes"] if n not in job["excluded_nodes"].split(",")]
        if job["job_state"] == "PENDING" and not others and free and not state["full"]:
            job.update(job_state="RUNNING", batch_host=free[0], nodes=free[0])

if command == "sbatch":
    if (here / "refuse").exists():
        sys.exit("sbatch: error: invalid partition specified: nope\n"
                 "sbatch: error: Batch job submission failed: Invalid partition name specified")
    state["last"] += 1
    state["jobs"].append({"job_id": state["last"], "name": options["--job-name"], "job_state": "PENDING",
        "state_reason": "None", "state_description": "", "nodes": "", "batch_host": "", "user_id": state["uid"],
        "excluded_nodes": options.get("--exclude", ""), "script": sys.stdin.read()})
    settle()
    if (here / "lose-reply").exists():
        (here / "state").write_text(json.dumps(state))
        (here / "lose-reply").unlink()
        import time
        time.sleep(1000)
    print(state["last"])
elif command == "squeue":
    settle()
    print(json.dumps({"meta": {}, "errors": [], "jobs": state["jobs"]}))
elif command == "scancel":
    ids = {int(each) for each in arguments if each.isdigit()}
    for job in state["jobs"]:
        if (job["job_id"] in ids or job["name"] == options.get("--name")) and job["job_state"] in live:
            job["job_state"] = "CANCELLED"
    settle()
elif command == "sinfo":
    for node in state["nodes"]:
        reason = state["drained"].get(node)
        print(f"{node}|{'drained' if reason else 'idle'}|Unknown|{reason or 'none'}")
(here / "state").write_text(json.dumps(state))
"""


class FakeSlurm:
    """The queue in ``here``. ``bin`` has the commands."""

    def __init__(self, here: Path, nodes: tuple[str, ...], uid: int) -> None:
        self.bin = here / "bin"
        self._here = here
        self.bin.mkdir(parents=True)
        self._write({"jobs": [], "nodes": nodes, "last": 0, "full": False, "drained": {}, "uid": uid})
        program = _PROGRAM.replace("@python@", sys.executable).replace("@here@", str(here))
        for name in ("sbatch", "squeue", "scancel", "sinfo"):
            path = self.bin / name
            path.write_text(program)
            path.chmod(0o700)

    def jobs(self, name: str = "") -> list[dict[str, Any]]:
        """Return the jobs, or those whose name ends so."""
        found: list[dict[str, Any]] = self._read()["jobs"]
        return [job for job in found if job["name"].endswith(name)]

    def set_state(self, name: str, state: str) -> None:
        """Set the state of the running jobs whose name ends so."""
        queue = self._read()
        for job in queue["jobs"]:
            if job["name"].endswith(name) and job["job_state"] == "RUNNING":
                job["job_state"] = state
        self._write(queue)

    def forget_ended(self) -> None:
        queue = self._read()
        queue["jobs"] = [job for job in queue["jobs"] if job["job_state"] in ("PENDING", "RUNNING")]
        self._write(queue)

    def set_full(self, *, full: bool) -> None:
        """Let new jobs wait for a node, or no longer."""
        self._write({**self._read(), "full": full})

    def drain(self, node: str, reason: str) -> None:
        self._write({**self._read(), "drained": {node: reason}})

    def remove_nodes(self) -> None:
        self._write({**self._read(), "nodes": []})

    def switch(self, fault: str, *, on: bool) -> None:
        """Let the commands fail: "down", "hang", "refuse" or "lose-reply"."""
        if on:
            (self._here / fault).touch()
        else:
            (self._here / fault).unlink()

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of each call of ``command``."""
        lines = (self._here / "calls").read_text().splitlines()
        return [arguments for name, arguments in map(json.loads, lines) if name == command]

    def _read(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self._here / "state").read_text())
        return read

    def _write(self, queue: dict[str, Any]) -> None:
        (self._here / "state").write_text(json.dumps(queue))
