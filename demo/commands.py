"""The `emberkeep` command, used as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import ClusterRecord, DaemonRecord, read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient

EMBERKEEP = str(Path(sys.executable).with_name("emberkeep"))


class CommandFailed(Exception):
    """The command failed; the text is its output."""


@dataclass(frozen=True)
class Cluster:
    """A local cluster of separate processes below one state directory."""

    state: Path

    def up(self, nodes: Sequence[str], slots: int, job_managers: int, definitions: Sequence[str]) -> None:
        """Start several JobManagers with a ZooKeeper, and task managers. Raises CommandFailed."""
        options = [part for definition in definitions for part in ("-D", definition)]
        shape = ["--nodes", ",".join(nodes), "--slots", str(slots), "--ha", "--job-managers", str(job_managers)]
        self._run("cluster", "up", *shape, *options)

    def submit(self, *arguments: str) -> JobId:
        """Submit a job; return its id. Raises CommandFailed."""
        match = re.search(r"\b[0-9a-f]{32}\b", self._run("submit", *arguments))
        if match is None:
            raise CommandFailed("`emberkeep submit` printed no job id")
        return JobId(match.group())

    def stop(self, job_id: JobId, savepoints: Path, *, drain: bool = False) -> str:
        """Suspend or drain the job; return its savepoint's location. Raises CommandFailed."""
        how = ["--drain"] if drain else []
        said = self._run("stop", job_id, *how, "--savepoint-path", str(savepoints))
        match = re.search(r"^(/.+)$", said, re.MULTILINE)  # alone in its line
        if match is None:
            raise CommandFailed("`emberkeep stop` printed no savepoint")
        return match.group(1)

    def output_of(self, job_id: JobId) -> str:
        """Return what the job's script has printed. Raises CommandFailed."""
        return self._run("logs", job_id)

    def evacuate(self, node: str) -> None:
        """Raises CommandFailed."""
        self._run("node", "evacuate", node, "--cause", "replacing a disk")

    def unblock(self, node: str) -> None:
        """Raises CommandFailed."""
        self._run("node", "unblock", node)

    def down(self) -> None:
        """Raises CommandFailed."""
        self._run("cluster", "down")

    def record(self) -> ClusterRecord:
        """Return what `cluster up` started."""
        record = read_cluster(self._file)
        assert record is not None, "the cluster is up"
        return record

    def job_manager(self, address: str) -> DaemonRecord:
        """Return the JobManager at ``address``."""
        record = self.record()
        return record.job_managers[record.urls.index(record.url_of(address))]

    def client(self) -> RestClient:
        return RestClient(local_endpoint(self.record(), self._file))

    def others(self, address: str) -> list[RestClient]:
        """Return clients of all JobManagers but the one at ``address``. They do not retry."""
        record = self.record()
        endpoint = local_endpoint(record, self._file)
        urls = [url for url in record.urls if url != record.url_of(address)]
        return [RestClient(replace(endpoint, url=url, others=()), patience=0.0) for url in urls]

    @property
    def _file(self) -> Path:
        return self.state / "cluster.json"

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [EMBERKEEP, *arguments],
            env={**os.environ, "EMBERKEEP_STATE_DIR": str(self.state)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CommandFailed(f"emberkeep {' '.join(arguments[:2])} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout
