"""Options of the BLOB store: job files, messages that are too large to send, logs."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import SOME_TIME, integer, size, text
from emberkeep.base.configuration.values import Option, define

BLOB_DIRECTORY = define(
    Option(
        "blob.storage.directory",
        "",
        text,
        "path",
        "Local store of a JobManager's BLOB server or a task manager's BLOB cache. Empty: `blobs` below the "
        "process's own directory. Each process on a machine needs a directory of its own.",
    )
)
BLOB_HA_STORAGE = define(
    Option(
        "blob.storage.ha-directory",
        "",
        text,
        "path",
        "Where permanent BLOBs are kept for recovery: a directory that all machines share, or "
        "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix. Object stores need `pip install "
        "'emberkeep[object-store]'` and take their credentials from the environment. Empty: `blobs` below "
        "high-availability.storageDir.",
    )
)
BLOB_RETENTION = define(
    Option(
        "blob.retention.interval",
        1800.0,
        SOME_TIME,
        "duration",
        "Time between two staged clean-ups. An unreferenced BLOB is deleted after one to two of these intervals.",
        deprecated_keys=("library-cache-manager.cleanup.interval",),
    )
)
BLOB_MAX_SIZE = define(
    Option(
        "blob.max-size", 4 * 1024**3, size, "size", "Size limit of one BLOB.", deprecated_keys=("web.upload.max-size",)
    )
)
BLOB_MAX_COUNT = define(
    Option(
        "blob.max-count",
        500_000,
        integer(1, 10_000_000),
        "integer",
        "Number of BLOBs of all jobs. While there are so many, clients cannot upload or announce further ones. "
        "Messages and logs of jobs that run are accepted beyond it.",
    )
)
BLOB_DIRECT_DOWNLOADS = define(
    Option(
        "blob.server.direct-downloads",
        4,
        integer(1, 100_000),
        "integer",
        "How many downloads of one BLOB the BLOB server serves at a time. It refers further ones to task "
        "managers whose BLOB cache has the BLOB.",
    )
)
OFFLOAD_MIN_SIZE = define(
    Option(
        "rpc.offload.min-size",
        1024**2,
        size,
        "size",
        "Size above which a part of an RPC message travels as a BLOB, uploaded once for all receivers.",
    )
)
