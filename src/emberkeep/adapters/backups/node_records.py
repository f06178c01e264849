"""The records of a job store in ZooKeeper as one file of a backup: the nodes' contents, without signatures.

Paths are relative to the cluster's own node. The order is that of the nodes' creation, which is the order of the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy, readable_upgrades
from emberkeep.adapters.backups.names import NODES
from emberkeep.adapters.job_store.graph_files import decode_handle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.adapters.shared_storage.store_origin import origin_of
from emberkeep.adapters.zookeeper.layout import KeyNode, ResultNode, decode_node
from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged, Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.files.ownership import decode_owner
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.upgrades.model import Upgrade

_KIND, _VERSION = "backup-nodes", 1

OWNER = "owner"
JOBS, ATTEMPTS, CHECKPOINTS, RESULTS, KEYS, UPGRADES = (
    "currentJobs",
    "attempts",
    "checkpoints",
    "results",
    "keys",
    "upgrades",
)


class Node(Compatible, frozen=True, kw_only=True):
    """A node's path below the cluster's own node, and its content."""

    path: str
    data: bytes = b""

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0]

    @property
    def name(self) -> str:
        return self.path.partition("/")[2]


class NodesRecord(Compatible, frozen=True, kw_only=True):
    """Persisted (kind "backup-nodes", version 1). ``epoch``: the newest leader's."""

    epoch: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Nodes:
    """The nodes of one job store."""

    record: NodesRecord
    where: str

    def copied(self, addresses: tuple[str, ...] = ()) -> StoreCopy:
        """Return the records in the nodes. Raises Damaged, NewerFormat."""
        by_path = {node.path: node.data for node in self.record.nodes}
        if OWNER not in by_path:
            raise Damaged(f"{self.where}: has no ownership record of the job store")
        owner = decode_owner(by_path[OWNER], where=f"{self.where}, {OWNER}")
        in_order = [node for node in self.record.nodes if node.name]
        upgrades, unreadable = readable_upgrades(
            ((f"{self.where}, {node.path}", node.data) for node in in_order if node.folder == UPGRADES),
            lambda data, where: decode_node(data, Upgrade, where=where),
        )
        return StoreCopy(
            member=NODES,
            identity=owner.place_id,
            storage_id=origin_of(owner.place_id, owner.belongs_to).storage,
            epoch=self.record.epoch,
            jobs=tuple(self._job(JobId(node.name), by_path) for node in in_order if node.folder == JOBS),
            upgrades=upgrades,
            unreadable=unreadable,
            results=tuple(self._files_of_results(in_order)),
            addresses=addresses,
        )

    def _job(self, job_id: JobId, by_path: dict[str, bytes]) -> CopiedJob:
        """Return a job's records. Raises NewerFormat; a damaged record becomes the job's problem."""
        where = f"{self.where}, job {job_id}"
        pointers = by_path.get(f"{CHECKPOINTS}/{job_id}")
        try:
            return CopiedJob(
                job_id=job_id,
                handle=decode_handle(by_path[f"{JOBS}/{job_id}"], where=where),
                attempt=decode_node(by_path.get(f"{ATTEMPTS}/{job_id}", b""), StoredAttempt, where=where),
                pointers=JobPointers() if pointers is None else decode_node(pointers, JobPointers, where=where),
            )
        except NewerFormat:
            raise
        except Fatal as error:
            return CopiedJob(job_id=job_id, handle=None, attempt=StoredAttempt(attempt=0), problem=error.message)

    def _files_of_results(self, nodes: list[Node]) -> list[ResultFile]:
        found = []
        for node in nodes:
            if node.folder == RESULTS:
                try:
                    result = decode_node(node.data, ResultNode, where=f"{self.where}, {node.path}")
                except NewerFormat:
                    raise
                except Fatal:
                    continue  # copied as it is: the leader reports it
                if result.file is not None:
                    found.append(result.file)
        return found


def owner_of_key(node: Node) -> JobId | None:
    """Return the job that was created under an idempotency key; None if the node is damaged. Raises NewerFormat."""
    try:
        return decode_node(node.data, KeyNode, where=node.path).job_id
    except NewerFormat:
        raise
    except Fatal:
        return None


def encode_nodes(record: NodesRecord) -> bytes:
    return encode_record(_KIND, _VERSION, msgspec.json.encode(record))


def read_nodes(data: bytes, *, where: str) -> Nodes:
    """Return the nodes in a file of a backup. Raises Damaged, NewerFormat."""
    try:
        return Nodes(from_json(decode_record(data, _KIND, _VERSION, where=where), NodesRecord), where)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None
