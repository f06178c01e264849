"""Which files of a checkpoint its committed batch N needs. Pure; names are relative to the checkpoint.

Spark never changes a file below ``offsets/``, ``commits/`` and ``state/`` once it is there, and keeps those of the last
``spark.sql.streaming.minBatchesToRetain`` batches: so they can be copied while the query goes on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from emberkeep.base.errors import RetryLater

# <version>[_<unique id>].<kind>[.crc]: the state of one partition; version N + 1 is the state after batch N.
_STATE_FILE = re.compile(r"(\d+)(_[0-9A-Za-z-]+)?\.(delta|snapshot|changelog|zip)(\.crc)?")
_SNAPSHOTS = ("snapshot", "zip")
_COMPACTED = re.compile(r"(\d+)\.compact")
_REFERENCED = re.compile(r'"dfs\w*FileName"\s*:\s*"([^"]+)"')
_SHARED = ("SSTs", "logs")  # directories of files that RocksDB's snapshots refer to


def log_entries(names: Iterable[str], log: str) -> list[int]:
    """The batches that ``log`` ("offsets" or "commits") has entries of, in order."""
    prefix = f"{log}/"
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isdecimal())


def needed_files(names: Iterable[str], batch: int, first: int) -> list[str]:
    """Everything but the files that snapshots refer to, see ``referenced_files``.

    ``first``: the batch from which on log entries are kept; of a drained query the one before the drain. Raises
    RetryLater where a state file is not there (any more): look again, at a later batch.
    """
    seen = [name for name in names if not _is_hidden(name)]
    chosen = [name for name in seen if name == "metadata"]
    for log in ("offsets", "commits"):
        # The batch before the first is where Spark reads that batch's beginning from.
        chosen += [f"{log}/{entry}" for entry in log_entries(seen, log) if first - 1 <= entry <= batch]
    chosen += _source_files(name for name in seen if name.startswith("sources/"))
    if batch >= 0:
        chosen += _state_files([name for name in seen if name.startswith("state/")], batch + 1)
    return sorted(chosen)


def snapshots_with_references(chosen: Iterable[str]) -> list[str]:
    """Those whose content names further files."""
    return [name for name in chosen if name.endswith(".zip") and name.startswith("state/")]


def referenced_files(snapshot: str, description: str) -> list[str]:
    """What a snapshot needs besides itself. ``description``: the text of its entry "metadata"."""
    directory = snapshot.rpartition("/")[0]
    names = _REFERENCED.findall(description)
    return [f"{directory}/{'logs' if name.endswith('.log') else 'SSTs'}/{name}" for name in names]


def _is_hidden(name: str) -> bool:
    """Check sums of Hadoop's local file system, and files that are still being written."""
    return any(part.startswith(".") for part in name.split("/")) or name.endswith(".tmp")


def _source_files(names: Iterable[str]) -> list[str]:
    """What sources remember by themselves. Logs that are compacted begin at the last but one compacted entry: the
    last may be of the batch that runs now."""
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
    """The newest snapshot that is old enough, and every change after it."""
    files = [(tail, found) for tail in tails if (found := _STATE_FILE.fullmatch(tail))]
    reached = [(tail, found, int(found.group(1))) for tail, found in files if int(found.group(1)) <= version]
    if any(found.group(2) for _, found, _ in reached):
        # Versions may have several authors; which one counts is written in the files: all of them are kept.
        return [tail for tail, _, _ in reached]
    snapshots = [number for _, found, number in reached if found.group(3) in _SNAPSHOTS and not found.group(4)]
    base = max(snapshots, default=0)
    changes = {number for _, found, number in reached if found.group(3) not in _SNAPSHOTS and not found.group(4)}
    missing = [number for number in range(base + 1, version + 1) if number not in changes]
    if missing:
        raise RetryLater(
            f"{directory} lacks version {missing[0]} of the state",
            hint="was it cleaned up meanwhile? Then raise spark.sql.streaming.minBatchesToRetain",
        )
    return [
        tail for tail, found, number in reached if number > base or (number == base and found.group(3) in _SNAPSHOTS)
    ]
