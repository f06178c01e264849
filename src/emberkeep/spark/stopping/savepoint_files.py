"""Select the files of a checkpoint that its committed batch N needs. Pure; names are relative to the checkpoint.

Spark never changes a file below ``offsets/``, ``commits/`` and ``state/`` once it exists, and retains those of the last
``spark.sql.streaming.minBatchesToRetain`` batches. So they can be copied while the query runs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from emberkeep.base.errors import RetryLater

# File of one partition's state: <version>[_<unique id>].<kind>[.crc]. Version N + 1 is the state after batch N.
_STATE_FILE = re.compile(r"(\d+)(_[0-9A-Za-z-]+)?\.(delta|snapshot|changelog|zip)(\.crc)?")
_SNAPSHOTS = ("snapshot", "zip")
_COMPACTED = re.compile(r"(\d+)\.compact")
_REFERENCED = re.compile(r'"dfs\w*FileName"\s*:\s*"([^"]+)"')
_SHARED = ("SSTs", "logs")  # directories with the files that RocksDB snapshots refer to


def log_entries(names: Iterable[str], log: str) -> list[int]:
    """Return the batches that have an entry in ``log``, in ascending order. ``log``: a directory such as "offsets"."""
    prefix = f"{log}/"
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isdecimal())


def needed_files(names: Iterable[str], batch: int, first: int) -> list[str]:
    """Return the files that ``batch`` needs, except those that snapshots refer to: see ``referenced_files``.

    ``first``: oldest batch whose log entries are needed; for a drained query the batch before the drain. Raises
    RetryLater if a state file is missing: list the files again, at a later batch.
    """
    seen = [name for name in names if not _is_hidden(name)]
    chosen = [name for name in seen if name == "metadata"]
    for log in ("offsets", "commits"):
        # The entry of the batch before the first tells Spark where the first one begins.
        chosen += [f"{log}/{entry}" for entry in log_entries(seen, log) if first - 1 <= entry <= batch]
    chosen += _source_files(name for name in seen if name.startswith("sources/"))
    if batch >= 0:
        chosen += _state_files([name for name in seen if name.startswith("state/")], batch + 1)
    return sorted(chosen)


def snapshots_with_references(chosen: Iterable[str]) -> list[str]:
    """Return the chosen snapshots whose content names further files."""
    return [name for name in chosen if name.endswith(".zip") and name.startswith("state/")]


def referenced_files(snapshot: str, description: str) -> list[str]:
    """Return the further files that a snapshot needs. ``description``: the text of its ZIP entry "metadata"."""
    directory = snapshot.rpartition("/")[0]
    names = _REFERENCED.findall(description)
    return [f"{directory}/{'logs' if name.endswith('.log') else 'SSTs'}/{name}" for name in names]


def _is_hidden(name: str) -> bool:
    """True for checksum files of Hadoop's local file system and for files that are still being written."""
    return any(part.startswith(".") for part in name.split("/")) or name.endswith(".tmp")


def _source_files(names: Iterable[str]) -> list[str]:
    """Select the files that sources keep in the checkpoint.

    In a log with compacted entries, start at the last but one: the last may belong to the batch that is running now.
    """
    by_directory: dict[str, list[str]] = defaultdict(list)
    for name in names:
        directory, _, tail = name.rpartition("/")
        by_directory[directory].append(tail)
    chosen = []
    for directory, tails in by_directory.items():
        compacted = sorted(int(found.group(1)) for tail in tails if (found := _COMPACTED.fullmatch(tail)))
        start = compacted[-2] if len(compacted) > 1 else -1
        chosen += [f"{directory}/{tail}" for tail in tails if _log_number(tail, start) >= start]
    return chosen


def _log_number(tail: str, default: int) -> int:
    number = tail.removesuffix(".compact")
    return int(number) if number.isdecimal() else default


def _state_files(names: list[str], version: int) -> list[str]:
    by_directory: dict[str, list[str]] = defaultdict(list)
    chosen = []
    for name in names:
        directory, _, tail = name.rpartition("/")
        if _STATE_FILE.fullmatch(tail):
            by_directory[directory].append(tail)
        elif directory.rpartition("/")[2] not in _SHARED:
            chosen.append(name)  # schemas and descriptions of operators
    for directory, tails in by_directory.items():
        chosen += [f"{directory}/{tail}" for tail in _of_partition(directory, tails, version)]
    return chosen


def _of_partition(directory: str, tails: list[str], version: int) -> list[str]:
    """Select the newest snapshot at or below ``version``, and every change after it up to ``version``."""
    files = [(tail, found) for tail in tails if (found := _STATE_FILE.fullmatch(tail))]
    reached = [(tail, found, int(found.group(1))) for tail, found in files if int(found.group(1)) <= version]
    if any(found.group(2) for _, found, _ in reached):
        # A version may have several files with different unique ids, and only their content says which file is valid.
        return [tail for tail, _, _ in reached]
    snapshots = [number for _, found, number in reached if found.group(3) in _SNAPSHOTS and not found.group(4)]
    base = max(snapshots, default=0)
    changes = {number for _, found, number in reached if found.group(3) not in _SNAPSHOTS and not found.group(4)}
    missing = [number for number in range(base + 1, version + 1) if number not in changes]
    if missing:
        raise RetryLater(
            f"{directory} lacks version {missing[0]} of the state",
            hint="if Spark's cleanup removed it during the copy, raise spark.sql.streaming.minBatchesToRetain",
        )
    return [
        tail for tail, found, number in reached if number > base or (number == base and found.group(3) in _SNAPSHOTS)
    ]
