"""Paths of a cluster's nodes in ZooKeeper, and their content: small typed JSON records with version and checksum.

```
/<root>/<cluster-id>/epoch                 the newest leader; the node's version is the leader's epoch
                    /leader                the leader's address; ephemeral
                    /election/…            latches; ephemeral, sequential: the owner of the first may lead
                    /addresses/<address>~… the process at that address; ephemeral, sequential: the first owns it
                    /currentJobs/<job>     state handle: the job has to be recovered
                    /attempts/<job>        newest attempt of the job's driver
                    /checkpoints/<job>     pointers to the job's committed micro-batches and savepoints, once it has any
                    /results/<job>         result of a job that has ended
                    /keys/<hash>           the job that was created under an idempotency key
                    /damaged/<job>         handle of a job that ended while its records were damaged, kept for a period
                                           from the node's creation. Below it: the job's attempt, and its checkpoints
                                           if they were unreadable
                    /damaged/blocklist     a damaged blocklist that was replaced
                    /owner                 ownership record, and the storage that belongs to this root
                    /blocklist             blocked nodes and task managers; empty until the first change
                    /tokens                named tokens; empty until the first one
                    /upgrades/<upgrade>    an upgrade of a job to new code
                    /storage/…             JobManagers that can read the shared storage; ephemeral
                    /restoring             a restore from a backup that has not ended
```
"""

from __future__ import annotations

import enum
import hashlib
from typing import TypeVar

from emberkeep.adapters.job_store.records import StoredAttempt, decode_json
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.adapters.job_store.unfinished_restore import RESTORING
from emberkeep.base.compatible import Compatible
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, ZOOKEEPER_ROOT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.durable import decode_record
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.blocklist.model import Blocklist
from emberkeep.identities.model import NamedTokens
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobResult
from emberkeep.jobs.upgrades.model import Upgrade

T = TypeVar("T")

_VERSION = 1


class LeaderRecord(Compatible, frozen=True, kw_only=True):
    """Persisted at ``epoch`` and ``leader``.

    ``life``: a random text that each contender draws, so that it recognises its own writes. ``epoch``: the epoch that
    the record was written for, so that an old record cannot be put back; 0 in records that are not signed.
    """

    address: str
    life: str
    epoch: int = 0


class LatchRecord(Compatible, frozen=True, kw_only=True):
    """Persisted at each latch: the address of its owner."""

    address: str


class RegisteredAddress(Compatible, frozen=True, kw_only=True):
    """Persisted at each JobManager's address: the process that registered it. ``processes``: its pid namespace.

    ``release``: its version of Emberkeep; "" from releases that do not write it.
    """

    address: str
    name: str
    host: str
    process: ProcessIdentity
    processes: str
    release: str = ""


class KeyNode(Compatible, frozen=True, kw_only=True):
    job_id: JobId
    key: str


class Cleaning(enum.Enum):
    """State of cleaning up after an ended job: DIRTY until its graph is deleted."""

    DIRTY = "DIRTY"
    CLEAN = "CLEAN"


class ResultNode(Compatible, frozen=True, kw_only=True):
    """How a job ended: ``result``, or the ``file`` that holds a large result. ``key``: the job's idempotency key.

    ``graph``: location of the graph to delete; empty if the graph must be kept because the job's records are damaged.
    """

    result: JobResult | None
    file: ResultFile | None
    key: str
    cleaning: Cleaning
    graph: str


KINDS: dict[type, str] = {
    LeaderRecord: "leader",
    LatchRecord: "latch",
    RegisteredAddress: "job-manager-address",
    StoredAttempt: "job-attempt",
    JobPointers: "job-checkpoints",
    Blocklist: "blocklist",
    NamedTokens: "named-tokens",
    KeyNode: "job-key",
    ResultNode: "job-result",
    Upgrade: "job-upgrade",
}


def encode_node(value: Compatible, over: bytes | None = None) -> bytes:
    """Return the content for a node. Raises NewerFormat.

    ``over``: the node's old content. Fields in it that a newer release has added are kept.
    """
    return encode_over(KINDS[type(value)], _VERSION, value, over or None)


def decode_node(data: bytes, kind: type[T], *, where: str) -> T:
    """Return the record in a node. Raises Damaged or NewerFormat (both Fatal), naming ``where``."""
    return decode_json(decode_record(data, KINDS[kind], _VERSION, where=where), kind, where=where)


class ZooKeeperLayout:
    """Paths of one cluster's nodes."""

    def __init__(self, root: str, cluster_id: str) -> None:
        self.base = f"/{root.strip('/')}/{cluster_id}" if root.strip("/") else f"/{cluster_id}"
        self.epoch = f"{self.base}/epoch"
        self.leader = f"{self.base}/leader"
        self.election = f"{self.base}/election"
        self.addresses = f"{self.base}/addresses"
        self.jobs = f"{self.base}/currentJobs"
        self.attempts = f"{self.base}/attempts"
        self.checkpoints = f"{self.base}/checkpoints"
        self.results = f"{self.base}/results"
        self.keys = f"{self.base}/keys"
        self.damaged = f"{self.base}/damaged"
        self.blocklist = f"{self.base}/blocklist"
        self.tokens = f"{self.base}/tokens"
        self.upgrades = f"{self.base}/upgrades"
        self.storage = f"{self.base}/storage"
        self.owner = f"{self.base}/owner"
        self.restoring = f"{self.base}/{RESTORING}"

    @property
    def persistent(self) -> tuple[str, ...]:
        """Paths of the nodes that must exist before anything else is written."""
        return (self.epoch, self.election, self.addresses, *self.records, self.blocklist, self.tokens, self.storage)

    @property
    def records(self) -> tuple[str, ...]:
        """Paths of the nodes below which each job or upgrade has nodes of its own."""
        return (self.jobs, self.attempts, self.checkpoints, self.results, self.keys, self.damaged, self.upgrades)

    def address(self, address: str) -> str:
        """Return the path of a JobManager's ("host:port") registration, without its sequence number."""
        return f"{self.addresses}/{address}~"

    def job(self, job_id: str) -> str:
        return f"{self.jobs}/{job_id}"

    def attempt(self, job_id: str) -> str:
        return f"{self.attempts}/{job_id}"

    def checkpoint(self, job_id: str) -> str:
        return f"{self.checkpoints}/{job_id}"

    def result(self, job_id: str) -> str:
        return f"{self.results}/{job_id}"

    def key(self, key: str) -> str:
        """Return the path of an idempotency key, as a hash: clients choose keys, which may contain any character."""
        return f"{self.keys}/{hashlib.sha256(key.encode()).hexdigest()}"

    def upgrade(self, upgrade_id: str) -> str:
        return f"{self.upgrades}/{upgrade_id}"

    def damaged_job(self, job_id: str) -> str:
        return f"{self.damaged}/{job_id}"

    def damaged_attempt(self, job_id: str) -> str:
        return f"{self.damaged}/{job_id}/attempt"

    def damaged_checkpoints(self, job_id: str) -> str:
        return f"{self.damaged}/{job_id}/checkpoints"

    @property
    def damaged_blocklist(self) -> str:
        """Path of an unreadable blocklist, kept once a new one has replaced it."""
        return f"{self.damaged}/blocklist"


def zookeeper_layout(configuration: Configuration) -> ZooKeeperLayout:
    """Return the paths for the configured root and cluster id. Raises InvalidInput if the cluster id is unusable."""
    cluster_id = configuration[HA_CLUSTER_ID].strip("/")
    if not cluster_id or "/" in cluster_id or cluster_id in (".", "..", "zookeeper"):
        raise InvalidInput(
            f"{HA_CLUSTER_ID.key}: {cluster_id!r} is not a valid name for a cluster",
            field=HA_CLUSTER_ID.key,
            hint="use letters, digits, '-' and '_'",
        )
    return ZooKeeperLayout(configuration[ZOOKEEPER_ROOT], cluster_id)
