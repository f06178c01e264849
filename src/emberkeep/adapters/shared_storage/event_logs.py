"""Event logs of a job's attempts, from which Spark shows its UI after their end.

They are in the job's directory of default checkpoints. Each attempt has a directory of its own, in which Spark makes
one for each SparkContext:

```
_emberkeep_event_logs/<attempt>/eventlog_v2_<application>/events_<number>_<application>.zstd
```

The directory belongs to the user of the job, who may have put anything there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

EVENT_LOGS = "_emberkeep_event_logs"
FILES_KEPT = 8  # of one application: the first one, which says what the application is, and the newest
ATTEMPTS_KEPT = 5
_ATTEMPT = re.compile(r"[0-9]{1,9}")
_APPLICATION = re.compile(r"eventlog_v2_([A-Za-z0-9][A-Za-z0-9_-]{0,127})")
_FILE = re.compile(r"events_([0-9]{1,9})_(.+)")
_PROBE, _PROBE_BYTES = ".emberkeep-probe", 64 * 1024


def attempt_directory(root: Path, attempt: int) -> Path:
    """Return the directory of an attempt's event logs. ``root``: the job's directory of default checkpoints."""
    return root / EVENT_LOGS / str(attempt)


def make_event_log(root: Path, attempt: int) -> Path:
    """Create the directory of an attempt's event logs and return it; remove those of the oldest earlier attempts.

    Spark does not start without the directory, or if the first file in it cannot be written. So this writes and removes
    a test file. Creates ``root``, but not its parent. Raises OSError.
    """
    directory = attempt_directory(root, attempt)
    for missing in (root, directory.parent, directory):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(mode=0o700)
    probe = directory / _PROBE
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)
    earlier = sorted(number for number in _attempts(directory.parent) if number < attempt)
    for number in earlier[: max(0, len(earlier) + 1 - ATTEMPTS_KEPT)]:
        shutil.rmtree(directory.parent / str(number), ignore_errors=True)
    return directory


def _attempts(directory: Path) -> list[int]:
    return [int(name) for name in os.listdir(directory) if _ATTEMPT.fullmatch(name)]  # noqa: PTH208


# --- the bound of one application -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trimming:
    """How an application's log gets smaller: first ``head`` takes the name of ``onto``, then ``removed`` go, in order.

    All are numbers of files. Readers need consecutive numbers, which these are after each step.
    """

    head: int
    onto: int
    removed: tuple[int, ...]


def trimming(numbers: Collection[int], most: int) -> Trimming | None:
    """Return how to keep at most ``most`` (at least 2) files of a log: the first and the newest; None if it is small.

    The first file has the events that name the application and its settings. Without them, nothing can be shown.
    """
    ordered = sorted(numbers)
    if len(ordered) <= most:
        return None
    head, *others = ordered
    dropped = others[: len(ordered) - most]
    return Trimming(head=head, onto=dropped[-1], removed=tuple(dropped[:-1]))


def trim_event_logs(directory: Path, most: int = FILES_KEPT) -> None:
    """Keep at most ``most`` files of each application in an attempt's ``directory``. Raises OSError.

    Spark appends to the newest file only, so the others do not change.
    """
    for application in _applications(directory):
        files = _event_files(application)
        planned = trimming(files.keys(), most)
        if planned is None:
            continue
        files[planned.head].rename(files[planned.onto])
        for number in planned.removed:
            files[number].unlink(missing_ok=True)


def _applications(directory: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(directory) if _APPLICATION.fullmatch(name))  # noqa: PTH208
    except FileNotFoundError:
        return []
    return [directory / name for name in names]


def _event_files(application: Path) -> dict[int, Path]:
    matches = [(name, _FILE.fullmatch(name)) for name in os.listdir(application)]  # noqa: PTH208
    return {int(match[1]): application / name for name, match in matches if match is not None}
