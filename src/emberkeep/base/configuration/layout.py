"""The layout below the state directory. Pure paths: nothing is read or created here.

```
<state>/config.yaml                 configuration of the local cluster
<state>/token                       bearer token (0600)
<state>/tls/                        the cluster's CA, and this node's certificate with its key (0700)
<state>/cluster.json                address of the local cluster, and its processes
<state>/jobmanager/                 job store, logs, audit log; jobmanagers/<id>/ if there are several
<state>/cluster-id                  id of this cluster in ownership records, without ZooKeeper
<state>/storage/                    shared durable storage: graphs/ blobs/ checkpoints/ savepoints/ events/ audit/
                                    logs/, and the ownership record. If ZooKeeper is used, each of the seven has one
                                    folder per cluster, and the ownership record is in clusters/<cluster-id>/
<state>/resourcemanager/            records of the task managers that a JobManager has started
<state>/taskmanagers/<id>/          working directory of a task manager
```
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, STORAGE_DIRECTORY, WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ID
from emberkeep.base.configuration.options.security import TLS_CA, TLS_CERTIFICATE, TLS_KEY, TOKEN_FILE
from emberkeep.base.configuration.places import directory_of
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId, TaskManagerId

CA_FILE = "ca.pem"
NODE_FILE = "node.pem"  # the certificate and its key in one file, so that both are replaced at once


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of one node: its certificate, the certificate's key, and the CAs that prove the cluster's processes."""

    certificate: str
    key: str
    ca: str


@dataclass(frozen=True)
class StateLayout:
    """Paths below one state directory. Options that name a location override the defaults."""

    root: Path
    configuration: Configuration

    @property
    def config_file(self) -> Path:
        return self.root / "config.yaml"

    @property
    def cluster_file(self) -> Path:
        return self.root / "cluster.json"

    @property
    def token_file(self) -> Path:
        return Path(self.configuration[TOKEN_FILE] or self.root / "token")

    @property
    def tls(self) -> Path:
        return self.root / "tls"

    @property
    def tls_files(self) -> TlsFiles:
        node = str(self.tls / NODE_FILE)
        return TlsFiles(
            certificate=self.configuration[TLS_CERTIFICATE] or node,
            key=self.configuration[TLS_KEY] or node,
            ca=self.configuration[TLS_CA] or str(self.tls / CA_FILE),
        )

    @property
    def job_manager(self) -> Path:
        name = self.configuration[JOB_MANAGER_ID]
        return self.root / "jobmanagers" / name if name else self.root / "jobmanager"

    @property
    def audit(self) -> Path:
        """Directory of a JobManager's audit log."""
        return self.job_manager / "audit"

    @property
    def storage(self) -> Path:
        return Path(self.configuration[STORAGE_DIRECTORY] or self.root / "storage")

    @property
    def storage_record(self) -> Path:
        """Directory with the storage's ownership record, and the marks of data to delete there.

        It covers this cluster's part of the storage.
        """
        if self.configuration[HA_TYPE] == "embedded":
            return self.storage
        return self.storage / "clusters" / self.configuration[HA_CLUSTER_ID]

    @property
    def graphs(self) -> Path:
        return self._of_cluster("graphs")

    @property
    def ha_blobs(self) -> str:
        """The location of the BLOBs kept for recovery: a directory, or the address of an object store."""
        return self.configuration[BLOB_HA_STORAGE] or str(self._of_cluster("blobs"))

    @property
    def checkpoints(self) -> Path:
        return self._of_cluster("checkpoints")

    @property
    def savepoints(self) -> Path:
        """Default target directory of savepoints."""
        return self._of_cluster("savepoints")

    @property
    def shipped_audit(self) -> Path | None:
        """Directory for the copy of a JobManager's audit log; None without a shared storage."""
        if not self.configuration[STORAGE_DIRECTORY]:
            return None
        return self._of_cluster("audit") / (self.configuration[JOB_MANAGER_ID] or "jobmanager")

    @property
    def events(self) -> Path:
        """Directory of what has happened to jobs and to the cluster; each job store has a folder of its own there."""
        return self._of_cluster("events")

    @property
    def kept_logs(self) -> Path:
        """Directory of the logs of drivers and executors that outlive their task managers."""
        return self._of_cluster("logs")

    def _of_cluster(self, kind: str) -> Path:
        """Return the directory for one kind of the cluster's data in the shared storage.

        With ZooKeeper, several clusters may share the storage, and each has its own directory below ``kind``. An
        embedded cluster is the only one in its storage.
        """
        place = self.storage / kind
        if self.configuration[HA_TYPE] == "embedded":
            return place
        return place / self.configuration[HA_CLUSTER_ID]

    @property
    def zookeeper(self) -> Path:
        """The directory of a local cluster's ZooKeeper servers."""
        return self.root / "zookeeper"

    @property
    def started_task_managers(self) -> Path:
        return self.root / "resourcemanager"

    def working_directory(self, task_manager: TaskManagerId) -> Path:
        return Path(self.configuration[WORKING_DIRECTORY] or self.root / "taskmanagers" / task_manager)


@dataclass(frozen=True)
class WorkingDirectory:
    """Paths below a task manager's working directory."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def slots_record(self) -> Path:
        return self.root / "slots.record"

    @property
    def agent_record(self) -> Path:
        return self.root / "agent.record"

    @property
    def leader_record(self) -> Path:
        return self.root / "leader.record"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def unpacked(self) -> Path:
        return self.root / "unpacked"

    def unpacked_for(self, user: str) -> Path:
        """Return the directory of archives that are unpacked for one user of the operating system."""
        return self.root / f"unpacked-for-{user}"

    @property
    def processes(self) -> Path:
        return self.root / "processes"

    @property
    def standbys(self) -> Path:
        """Directory of the standby processes' own directories."""
        return self.root / "standbys"

    @property
    def archive_builder(self) -> Path:
        """Directory for the record of the process that builds the class archive."""
        return self.root / "archive-builder"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def job(self, job_id: JobId) -> Path:
        return self.jobs / job_id

    def attempt(self, job_id: JobId, attempt: int) -> Path:
        return self.job(job_id) / str(attempt)

    def attempt_logs(self, job_id: JobId, attempt: int) -> Path:
        return self.logs / "jobs" / job_id / str(attempt)


def state_layout(configuration: Configuration, environ: Mapping[str, str]) -> StateLayout:
    """Return the layout for a configuration.

    The root is emberkeep.state-dir, else below $XDG_STATE_HOME, else in the home directory. As the XDG specification
    says, a relative path in that variable is ignored. Raises InvalidInput.
    """
    if configuration[STATE_DIRECTORY]:
        root = Path(directory_of(STATE_DIRECTORY.key, configuration[STATE_DIRECTORY])).absolute()
    elif environ.get("XDG_STATE_HOME", "").startswith("/"):
        root = Path(environ["XDG_STATE_HOME"]) / "emberkeep"
    else:
        root = home_directory(environ) / ".local" / "state" / "emberkeep"
    return StateLayout(root, configuration)


def home_directory(environ: Mapping[str, str]) -> Path:
    """Return the home directory: without HOME, as in services of the system, that of the user's account."""
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without an entry, as in some containers
        return Path("/")
