"""Read and change entries of the two logs in a streaming query's checkpoint, as texts. Pure.

Spark writes an entry of ``offsets/`` before a micro-batch runs, and one of ``commits/`` when it is done:

```
v1                                                      v1
{"batchWatermarkMs":…,"batchTimestampMs":…,"conf":…}    {"nextBatchWatermarkMs":…}
<one offset per source, a line each>
```

This module changes only the watermark and the time; it keeps everything else as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emberkeep.lifecycle.manifest import MAX_WATERMARK_MS
from emberkeep.spark.errors import SparkInternalsMissing

_VERSIONS = ("v1", "v2", "v3")
_BATCH_WATERMARK, _BATCH_TIMESTAMP, _NEXT_WATERMARK = "batchWatermarkMs", "batchTimestampMs", "nextBatchWatermarkMs"


@dataclass(frozen=True)
class LogState:
    """Newest entries of a checkpoint's logs: ``planned`` in ``offsets``, ``committed`` in ``commits``; -1 for none."""

    planned: int
    committed: int
    drained: bool = False  # the newest planned batch has the highest watermark

    @property
    def is_between_batches(self) -> bool:
        return self.planned == self.committed

    def __str__(self) -> str:
        return f"batch {self.committed} committed, batch {self.planned} planned"


def offset_texts(entry: str) -> tuple[str, ...]:
    """Return the end offset of each source, as texts."""
    _, _, offsets = _parts(entry, "offsets")
    return tuple(line for line in offsets.split("\n") if line)


def batch_watermark(entry: str) -> int:
    """Return the watermark in an entry of the offset log, in ms since 1970."""
    _, metadata, _ = _parts(entry, "offsets")
    return _number(metadata, _BATCH_WATERMARK, "offsets")


def batch_timestamp(entry: str) -> int:
    """Return when the batch of this offset log entry was planned, in ms since 1970."""
    _, metadata, _ = _parts(entry, "offsets")
    return _number(metadata, _BATCH_TIMESTAMP, "offsets")


def is_drain(entry: str) -> bool:
    """True if this entry of the offset log plans a drain's batch: one with the highest watermark."""
    return batch_watermark(entry) == MAX_WATERMARK_MS


def with_batch_watermark(entry: str, watermark_ms: int, now_ms: int | None = None) -> str:
    """Return the offset log entry with another watermark, and with the batch time ``now_ms`` if given."""
    version, metadata, offsets = _parts(entry, "offsets")
    _number(metadata, _BATCH_WATERMARK, "offsets")
    changed = {**metadata, _BATCH_WATERMARK: watermark_ms}
    if now_ms is not None:
        changed[_BATCH_TIMESTAMP] = now_ms
    return f"{version}\n{_compact(changed)}\n{offsets}"


def next_watermark(entry: str) -> int:
    """Return the next batch's watermark in an entry of the commit log, in ms since 1970."""
    _, metadata, _ = _parts(entry, "commits")
    return _number(metadata, _NEXT_WATERMARK, "commits")


def with_next_watermark(entry: str, watermark_ms: int) -> str:
    version, metadata, rest = _parts(entry, "commits")
    _number(metadata, _NEXT_WATERMARK, "commits")
    text = f"{version}\n{_compact({**metadata, _NEXT_WATERMARK: watermark_ms})}"
    return f"{text}\n{rest}" if rest else text


def _parts(entry: str, log: str) -> tuple[str, Mapping[str, Any], str]:
    version, _, rest = entry.partition("\n")
    metadata, _, rest = rest.partition("\n")
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):
        found = None
    if version not in _VERSIONS or not isinstance(found, dict):
        raise _unknown(log, entry)
    return version, found, rest


def _number(metadata: Mapping[str, Any], key: str, log: str) -> int:
    value = metadata.get(key)
    if not isinstance(value, int):
        raise _unknown(log, _compact(metadata))
    return value


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _unknown(log: str, entry: str) -> SparkInternalsMissing:
    return SparkInternalsMissing(
        f"this Spark's {log} log has entries in an unknown format: {entry[:200]!r}",
        hint="Emberkeep works with PySpark 4.3",
    )
