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
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.errors import Absent, Conflict, Damaged
from emberkeep.base.files.errors import cannot_read, is_directory
from emberkeep.base.files.hostile import open_to_read, remove_tree

EVENT_LOGS = "_emberkeep_event_logs"
FILES_KEPT = 8  # of one application: the first one, which says what the application is, and the newest
ATTEMPTS_KEPT = 5
APPLICATIONS_KEPT = 5  # of one attempt
_ATTEMPT = re.compile(r"[0-9]{1,9}")
_LOG = "eventlog_v2_"
_APPLICATION = re.compile(rf"{_LOG}([A-Za-z0-9][A-Za-z0-9_-]{{0,127}})")
_FILE = re.compile(r"events_([0-9]{1,9})_(.+)")
_COPIED = re.compile(r"(?:appstatus|events_[0-9]{1,9})_[A-Za-z0-9._-]{1,200}")
_MOST_BYTES = 1024**3  # of one application's files that are copied
_MOST_FILES = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROBE, _PROBE_BYTES = ".emberkeep-probe", 64 * 1024


def attempt_directory(root: Path, attempt: int) -> Path:
    """Return the directory of an attempt's event logs. ``root``: the job's directory of default checkpoints."""
    return root / EVENT_LOGS / str(attempt)


def log_name(app_id: str) -> str:
    """Return the name of the directory in which Spark writes the log of an application."""
    return f"{_LOG}{app_id}"


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
        remove_tree(directory.parent / str(number))
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
    """Keep the newest applications in an attempt's ``directory``, and at most ``most`` files of each. Raises OSError.

    Spark appends to the newest file only, so the others do not change.
    """
    applications = _applications(directory)  # an id begins with the time of the application's start
    for ended in applications[:-APPLICATIONS_KEPT]:
        shutil.rmtree(ended, ignore_errors=True)
    for application in applications[-APPLICATIONS_KEPT:]:
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


# --- reading after the attempt's end ----------------------------------------------------------------------------------


def copy_event_log(root: Path, attempt: int, into: Path) -> str:
    """Copy the log of an attempt's newest application to ``into``, and return the application's id.

    A reader gets a copy because the job's user can replace each file by a link or a pipe at any time. Blocks. Raises
    Absent (the attempt has no log), Conflict (it is too large), Damaged, Unavailable (the storage), OSError (writing).
    """
    with contextlib.ExitStack() as stack:
        try:
            opened, name = _open_newest(root, attempt, stack)
            files = sorted(file for file in os.listdir(opened) if _COPIED.fullmatch(file))  # noqa: PTH208
        except NotADirectoryError as error:  # the user has put something else there
            raise Damaged(f"{root / EVENT_LOGS}: {error.strerror}: {error.filename}") from error
        except FileNotFoundError as error:
            if is_directory(root.parent):
                raise _no_log(attempt) from error
            raise cannot_read(root / EVENT_LOGS, error) from error
        except OSError as error:
            raise cannot_read(root / EVENT_LOGS, error) from error
        if len(files) > _MOST_FILES:
            raise Conflict(f"the event log of attempt {attempt} has more than {_MOST_FILES} files")
        target = into / name
        partial = Path(tempfile.mkdtemp(prefix=".", dir=into))
        try:
            _copy_files(Path(f"/proc/self/fd/{opened}"), files, partial, attempt)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return name.removeprefix(_LOG)


def _open_newest(root: Path, attempt: int, closing: contextlib.ExitStack) -> tuple[int, str]:
    """Open the log of an attempt's newest application; ``closing`` closes it. Return its descriptor and its name.

    Each directory is opened below the one before, because the job's user can replace each by a link. Raises Absent,
    OSError.
    """
    logs = os.open(root / EVENT_LOGS, _DIRECTORY)
    closing.callback(os.close, logs)
    own = os.open(str(attempt), _DIRECTORY, dir_fd=logs)
    closing.callback(os.close, own)
    names = [name for name in os.listdir(own) if _APPLICATION.fullmatch(name)]  # noqa: PTH208
    if not names:
        raise _no_log(attempt)
    newest = max(names)  # an id begins with the time of the application's start
    opened = os.open(newest, _DIRECTORY, dir_fd=own)
    closing.callback(os.close, opened)
    return opened, newest


def _copy_files(source: Path, files: list[str], target: Path, attempt: int) -> None:
    left = _MOST_BYTES
    for file in files:
        try:
            descriptor = open_to_read(source / file)
        except FileNotFoundError:
            continue  # the bound has just removed it
        except OSError as error:
            raise Damaged(f"a file of the event log cannot be used: {file}: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as reading, (target / file).open("wb") as writing:
            while piece := reading.read(min(1024**2, left + 1)):
                left -= len(piece)
                if left < 0:
                    raise Conflict(f"the event log of attempt {attempt} has more than {_MOST_BYTES // 1024**2} MiB")
                writing.write(piece)


def _no_log(attempt: int) -> Absent:
    return Absent(
        f"attempt {attempt} has ended, and left no event log here to show its Spark UI from",
        hint="event logs are deleted some time after the job's end; a job that sets spark.eventLog.enabled or "
        "spark.eventLog.dir, or execution.event-log.enabled=false, writes none here: read a log in another place with "
        "a History Server of your own",
    )
