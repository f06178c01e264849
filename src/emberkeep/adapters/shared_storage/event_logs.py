"""Event logs of a job's attempts, from which Spark shows its UI after their end.

They are in the job's directory of default checkpoints. Each attempt has a directory of its own, in which Spark makes
one for each SparkContext:

```
_emberkeep_event_logs/<attempt>/eventlog_v2_<application>/events_<number>_<application>.zstd
```

A file without the ending of a codec has lines that the driver has kept of files that are gone.

The directory belongs to the user of the job, who may have put anything there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog

from emberkeep.base.errors import Absent, Conflict, Damaged, Fatal
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.errors import cannot_read, is_directory
from emberkeep.base.files.hostile import open_to_read, remove_tree

log = structlog.get_logger(__name__)

EVENT_LOGS = "_emberkeep_event_logs"
FILES_KEPT = 9  # of one application: the first one, which says what it is, one of lasting lines, and the newest seven
LINES_KEPT = 1000
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

Lasting = Callable[[Path], Sequence[bytes]]
"""Returns the lines of a log's file that a reader needs when the file is gone. Raises Damaged, SparkUnavailable."""


def trim_event_logs(directory: Path, lasting: Lasting = lambda _: (), most: int = FILES_KEPT) -> None:
    """Keep the newest applications in an attempt's ``directory``, and at most ``most`` (at least 3) files of each.

    Spark appends to the newest file only, so the others do not change. Raises OSError, and what ``lasting`` raises.
    """
    applications = _applications(directory)  # an id begins with the time of the application's start
    for ended in applications[:-APPLICATIONS_KEPT]:
        shutil.rmtree(ended, ignore_errors=True)
    for application in applications[-APPLICATIONS_KEPT:]:
        _trim(application, lasting, most)


def dropped_files(files: Sequence[str], most: int) -> Sequence[str]:
    """Return the files of a log to drop: none, or at least two. With one file of their lasting lines, ``most`` stay.

    ``files``: in their order. The first one stays: it has the events that name the application and its settings,
    without which nothing can be shown.
    """
    return files[1 : len(files) - most + 2] if len(files) > most else ()


def _trim(application: Path, lasting: Lasting, most: int) -> None:
    """Replace the dropped files by one file with their lasting lines, and give the first file the number before it.

    So the numbers are consecutive afterwards, as Spark requires. If this is interrupted, the first file is still the
    first one, and no line is lost, but numbers may be missing or there twice (see ``copy_event_log``).
    """
    files = _in_order(os.listdir(application))  # noqa: PTH208
    dropped = dropped_files(files, most)
    if not dropped:
        return
    lines = list(dict.fromkeys(line for name in dropped for line in _lasting_lines(application / name, lasting)))
    kept = f"events_{_number(dropped[-1])}_{application.name.removeprefix(_LOG)}"  # without the ending of a codec
    try:
        write_file(application / kept, b"".join(line + b"\n" for line in lines[-LINES_KEPT:]))
        place = _number(dropped[-1]) - 1  # dropped[-2] may have the same number, left by a deletion that failed
    except Fatal as error:  # a full disk gets its space all the same
        log.warning("the event log gets shorter without its lasting events", reason=str(error))
        kept, place = "", _number(dropped[-1])
    first = f"events_{place}_{_after_number(files[0])}"
    for name in dropped:
        if name not in (kept, first):
            (application / name).unlink(missing_ok=True)
    (application / files[0]).rename(application / first)


def _lasting_lines(file: Path, lasting: Lasting) -> Sequence[bytes]:
    try:
        return lasting(file)
    except Damaged as error:
        log.warning("the event log gets shorter without some of its lasting events", reason=str(error))
        return ()


def _applications(directory: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(directory) if _APPLICATION.fullmatch(name))  # noqa: PTH208
    except FileNotFoundError:
        return []
    return [directory / name for name in names]


def _in_order(names: Iterable[str]) -> list[str]:
    """Return those names that are files of a log, in the order in which they are read."""
    return sorted((name for name in names if _FILE.fullmatch(name)), key=lambda name: (_number(name), name))


def _number(name: str) -> int:
    return int(name.split("_")[1])


def _after_number(name: str) -> str:
    return name.split("_", 2)[2]


# --- reading after the attempt's end ----------------------------------------------------------------------------------


def copy_event_log(root: Path, attempt: int, into: Path) -> str:
    """Copy the log of an attempt's newest application to ``into``, and return the application's id.

    A reader gets a copy because the job's user can replace each file by a link or a pipe at any time. The copied files
    have consecutive numbers, although the driver may have ended while it trimmed the log. Blocks. Raises Absent (the
    attempt has no log), Conflict (it is too large), Damaged, Unavailable (the storage), OSError (writing).
    """
    with contextlib.ExitStack() as stack:
        try:
            opened, name = _open_newest(root, attempt, stack)
            files = [file for file in os.listdir(opened) if _COPIED.fullmatch(file)]  # noqa: PTH208
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
    left, number = _MOST_BYTES, 0
    events = _in_order(files)
    for file in [*events, *(file for file in files if file not in events)]:
        try:
            descriptor = open_to_read(source / file)
        except FileNotFoundError:
            continue  # the bound has just removed it
        except OSError as error:
            raise Damaged(f"a file of the event log cannot be used: {file}: {error.strerror}") from error
        number += file in events
        name = f"events_{number}_{_after_number(file)}" if file in events else file
        with os.fdopen(descriptor, "rb") as reading, (target / name).open("wb") as writing:
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
