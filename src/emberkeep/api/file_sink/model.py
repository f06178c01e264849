"""The sink's knowledge of its output: small frozen values. Each entry of the commit log has all of them.

Batches become *pieces*: Parquet files in the work directory, invisible to readers. Pieces are merged into *parts*, the
files that readers see. A part is first closed (complete, still invisible), then moved to its place by one rename.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.compatible import Compatible

NOTHING_YET = -1  # instead of a batch id


class FileFormat(enum.Enum):
    """The format of the part files."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


class Piece(Compatible, frozen=True, kw_only=True):
    """One invisible file with rows of the batches ``first`` to ``last`` that belong to one bucket.

    ``bucket``: the directory of its partition values, as Spark writes it ("day=1/hour=2"); "" without partitions.
    ``path``: below the work directory. ``rows``: None if not counted. ``schema``: key in SinkState.schemas.
    """

    first: int
    last: int
    bucket: str
    path: str
    size: int  # bytes
    schema: str
    since_ms: int  # Unix milliseconds at which the oldest of its rows arrived
    rows: int | None = None


class PartFile(Compatible, frozen=True, kw_only=True):
    """A complete part file: ``source`` below the work directory, ``target`` below the output."""

    first: int
    last: int
    source: str
    target: str


class SinkWriter(Compatible, frozen=True, kw_only=True):
    """The writer. ``job_id`` and ``attempt``: "" and 0 without Emberkeep. ``writer``: random id of one sink object."""

    job_id: str
    attempt: int
    writer: str


class SinkState(Compatible, frozen=True, kw_only=True):
    """Persisted (kind "rolling-file-sink", version 1).

    ``query``: id of the checkpoint that the batches come from. ``plans``: for the newest batches, a digest of what
    Spark had planned for them (offsets, watermark, time). It distinguishes a repeated batch from another one under the
    same number. ``shown``: newest batch with a row in a part, which therefore cannot be withdrawn. ``moves``: parts
    that are to become visible; their renames may be under way. ``growth``: bytes of a part per byte of the pieces that
    it was made from, learned from the parts made so far.
    """

    owner: SinkWriter
    growth: float
    query: str = ""
    checkpoint: str = ""
    last_batch: int = NOTHING_YET
    shown: int = NOTHING_YET
    plans: dict[str, str] = msgspec.field(default_factory=dict)
    schemas: dict[str, str] = msgspec.field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    closed: tuple[PartFile, ...] = ()
    moves: tuple[PartFile, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, in bytes, rows and milliseconds, at which the pieces of a bucket become a part. None: no such limit."""

    max_bytes: int
    max_rows: int | None = None
    max_age_ms: int | None = None
