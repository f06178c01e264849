"""``cluster.json``, the record of the local cluster that was started last: its address, processes and shape."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import google_crc32c
import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import write_file
from emberkeep.base.processes.process_identity import ProcessIdentity, is_alive, is_ending
from emberkeep.client.clusters.zookeeper_ensemble import ZooKeeperServer

_FORMAT, _VERSION = "emberkeep-cluster", 1


class DaemonRecord(Compatible, frozen=True, kw_only=True):
    """A daemon of the cluster, or a ZooKeeper server.

    ``name`` is "jobmanager", "jobmanager-1", "zookeeper-1" or the task manager's id. The daemon works in ``directory``,
    and its logs are in ``logs`` there.
    """

    name: str
    identity: ProcessIdentity
    directory: str

    @property
    def is_running(self) -> bool:
        return is_alive(self.identity)

    @property
    def is_ending(self) -> bool:
        """True if it was killed, or exits, and still counts as running."""
        return is_ending(self.identity)


class ZooKeeperRecord(Compatible, frozen=True, kw_only=True):
    """One ZooKeeper server of the cluster, with its ports, which never change."""

    daemon: DaemonRecord
    server: ZooKeeperServer


class ClusterShape(Compatible, frozen=True, kw_only=True):
    """The parts of a local cluster.

    ``memory`` is that of each task manager, ``definitions`` are the ``-D`` settings given.
    """

    nodes: tuple[str, ...]  # one task manager each
    slots: int
    memory: str
    definitions: tuple[str, ...]
    job_managers: int = 1
    zookeepers: int = 0  # 0: there is one JobManager, without ZooKeeper


class ClusterRecord(Compatible, frozen=True, kw_only=True):
    """A local cluster as it was last started: its shape, its addresses and its processes."""

    url: str  # of the first JobManager; each redirects to the leader
    token_file: str
    shape: ClusterShape
    job_manager: DaemonRecord
    task_managers: tuple[DaemonRecord, ...]
    standbys: tuple[DaemonRecord, ...] = ()
    standby_urls: tuple[str, ...] = ()
    zookeepers: tuple[ZooKeeperRecord, ...] = ()
    ca: str = ""  # the file with the CAs of its processes' certificates; empty: the cluster does not encrypt

    @property
    def job_managers(self) -> tuple[DaemonRecord, ...]:
        return (self.job_manager, *self.standbys)

    @property
    def daemons(self) -> tuple[DaemonRecord, ...]:
        return (*(zookeeper.daemon for zookeeper in self.zookeepers), *self.job_managers, *self.task_managers)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the JobManagers, in the order of ``job_managers``."""
        return (self.url, *self.standby_urls)

    def url_of(self, address: str) -> str:
        """Return the URL of the JobManager at ``address`` ("host:port"); the first JobManager's if none has it."""
        return next((url for url in self.urls if urlsplit(url).netloc == address), self.url)

    @property
    def is_served(self) -> bool:
        """True if one of its JobManagers runs."""
        return any(daemon.is_running for daemon in self.job_managers)


class _File(Compatible, frozen=True, kw_only=True):
    format: str
    version: int
    crc32c: str
    cluster: msgspec.Raw


def write_cluster(path: Path, record: ClusterRecord) -> None:
    """Replace the record in the file ``path``. Raises Fatal."""
    body = msgspec.json.encode(record)
    checksum = f"{google_crc32c.value(body):08x}"
    file = _File(format=_FORMAT, version=_VERSION, crc32c=checksum, cluster=msgspec.Raw(body))
    write_file(path, msgspec.json.encode(file) + b"\n")


def read_cluster(path: Path) -> ClusterRecord | None:
    """Return the recorded cluster, running or not; None if there is no record.

    Raises Fatal if the file cannot be read, is damaged, or was written by another release.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Fatal(f"cannot read {path}: {error.strerror or error}") from error
    hint = f"end the processes of that cluster that are still running, then delete {path}"
    try:
        file = from_json(data, _File)
        if (file.format, file.version) != (_FORMAT, _VERSION):
            raise Fatal(f"{path}: {file.format} version {file.version} is unknown", hint=hint)
        body = bytes(file.cluster)
        if f"{google_crc32c.value(body):08x}" != file.crc32c:
            raise Fatal(f"{path} is damaged (checksum differs)", hint=hint)
        return from_json(body, ClusterRecord)
    except msgspec.MsgspecError as error:
        raise Fatal(f"{path} is damaged: {error}", hint=hint) from None
