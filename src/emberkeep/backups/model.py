"""The contents of a backup, and what verifying and restoring it reports."""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import JobId

MANIFEST_KIND, MANIFEST_VERSION = "backup", 1

# By how much a restore raises the numbers of the lost cluster, because it may have used more since the backup.
EPOCHS_SKIPPED = 10_000
ATTEMPTS_SKIPPED = 1000


class StoreKind(enum.Enum):
    """The kind of a cluster's job store, as ``high-availability.type`` names it."""

    EMBEDDED = "embedded"
    ZOOKEEPER = "zookeeper"


class Member(Compatible, frozen=True, kw_only=True):
    """A file of the backup: its path in the backup, its size in bytes, and the SHA-256 of its content."""

    name: str
    size: int
    sha256: str


class BlobOwner(Compatible, frozen=True, kw_only=True):
    """A permanent BLOB, and the job that owns it. The bytes are the member ``blobs/<sha256>``."""

    job_id: JobId
    sha256: str


class BackedUpJob(Compatible, frozen=True, kw_only=True):
    """A job that has to be recovered.

    ``attempt``: its newest attempt. ``graph``: the member with its job graph; "" if the backup lacks it. ``problem``:
    what the backup lacks of the job, and why; "" if it is complete. ``batches``: the newest batch that was known to be
    committed, by the location of the checkpoint. ``savepoints``: locations, oldest first.
    """

    job_id: JobId
    name: str
    attempt: int
    graph: str = ""
    problem: str = ""
    batches: dict[str, int] = msgspec.field(default_factory=dict)
    savepoints: tuple[str, ...] = ()
    has_secrets: bool = False


class BackupManifest(Compatible, frozen=True, kw_only=True):
    """The contents of a backup. Persisted (kind "backup", version 1).

    - ``release``: the release of Emberkeep that made it.
    - ``identity``: names the job store. ``storage_id``: identity of the storage that the store was used with; "" if
      none.
    - ``epoch``: the newest leader's.
    - ``storage``, ``checkpoints``, ``savepoints``: the cluster's directories of these. ``savepoint_directory``: where
      savepoints were made instead, by the cluster's settings; "" if these named no place.
    - ``addresses``: where JobManagers listened ("host:port").
    - ``records``: the member with the records of the job store.
    - ``problems``: what the backup lacks of upgrades that are under way, or whose records are damaged, and why.
    """

    made_ms: int
    release: str
    store: StoreKind
    cluster_id: str
    identity: str
    storage_id: str
    epoch: int
    storage: str
    checkpoints: str
    savepoints: str
    records: str
    members: tuple[Member, ...]
    addresses: tuple[str, ...] = ()
    jobs: tuple[BackedUpJob, ...] = ()
    blobs: tuple[BlobOwner, ...] = ()
    has_keys: bool = False
    problems: tuple[str, ...] = ()
    savepoint_directory: str = ""

    @property
    def size(self) -> int:
        """Bytes of all members."""
        return sum(member.size for member in self.members)

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the backup lacks because the cluster lacked it, in sentences."""
        return (*(f"job {job.job_id} {job.name}: {job.problem}" for job in self.jobs if job.problem), *self.problems)


class BackupDamaged(Fatal):
    """The backup lacks something that it had, or something in it has changed."""


# --- reports ----------------------------------------------------------------------------------------------------------


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged part of a backup: its path in the backup, and what is wrong with it."""

    member: str
    what: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a backup.

    ``manifest``: None if it cannot be read. ``sealed``: True if the manifest was made with this cluster's token, False
    if not, None if that was not checked because there is no token here.
    """

    damages: tuple[Damage, ...]
    manifest: BackupManifest | None = None
    sealed: bool | None = None

    @property
    def is_sound(self) -> bool:
        return not self.damages and self.sealed is not False
