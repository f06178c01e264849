"""REST bodies of a job's submission."""

from __future__ import annotations

import msgspec
from msgspec import field

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent
from emberkeep.jobs.model import Artefact, EntryPoint, JobResources

IDEMPOTENCY_HEADER = "Idempotency-Key"


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job graph without the fields that the JobManager adds (job id, time).

    Field names are those of the job graph, with underscores.

    ``idempotency_key`` may be sent as the Idempotency-Key header instead; requests with the same key start one job.
    ``jobid``: chosen by the client, which first uploads the job's files under this id. If it is "", the job has no
    files to upload and the JobManager chooses an id. ``secrets``: environment variables of the job's driver and
    executors, which are stored encrypted and never shown.
    """

    name: str
    entry_point: EntryPoint
    arguments: list[str]
    artefacts: list[Artefact]
    spark_conf: dict[str, str]
    options: dict[str, str]
    working_directory: str
    resources: JobResources
    python: str  # the client's, "3.11"
    idempotency_key: str = ""
    jobid: str = ""
    savepoint: str = ""  # directory of the savepoint that the job starts from
    namespace: str = ""  # of the job; "" for that of the caller
    secrets: dict[str, str] = msgspec.field(default_factory=dict)


class OffloadedSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sent instead of a large JobSubmission: a transient BLOB of the job, which contains the submission as JSON.

    ``secrets``: the job's secrets. The submission in the BLOB has none, because a BLOB is not encrypted.
    """

    jobid: str
    blob: BlobContent
    idempotency_key: str
    secrets: dict[str, str] = msgspec.field(default_factory=dict)


class JobSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The submitted job. ``created`` false: the idempotency key was known, and this is the job that it started."""

    jobid: JobId
    job_url: str = field(name="jobUrl")
    created: bool
