"""Reads from a query's checkpoint how far it is: Spark's own logs, as any reader of the file system sees them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec


class Reached(msgspec.Struct, frozen=True):
    """``committed`` and ``planned``: numbers of the newest batches, -1 for none."""

    committed: int
    planned: int


def directory_of(location: str) -> Path:
    """Return the directory that a checkpoint's URI names."""
    return Path(unquote(urlsplit(location).path))


def reached(checkpoint: Path) -> Reached:
    """Return how far a query is."""
    return Reached(_newest(checkpoint / "commits"), _newest(checkpoint / "offsets"))


def files_read(checkpoint: Path) -> int:
    """Return how many files of its source a query has read in committed batches; of a join, its slower side."""
    newest = _newest(checkpoint / "commits")
    if newest < 0:
        return 0
    lines = (checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8").splitlines()
    counts = []
    for source, line in enumerate(lines[2:]):
        log = checkpoint / "sources" / str(source)
        if not log.exists():  # a join of a source with itself has two offsets, and one log
            log = checkpoint / "sources" / "0"
        counts.append(_entries(log, json.loads(line)["logOffset"]) if line.startswith("{") else 0)
    return min(counts, default=0)


def _newest(log: Path) -> int:
    try:
        return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def _entries(log: Path, last: int) -> int:
    """Return how many files the batches of a source up to ``last`` have."""
    found = set()
    for path in log.iterdir():
        if path.name.removesuffix(".compact").isdigit():
            for line in path.read_text(encoding="utf-8").splitlines()[1:]:
                entry = json.loads(line)
                if entry["batchId"] <= last:
                    found.add(entry["path"])
    return len(found)
