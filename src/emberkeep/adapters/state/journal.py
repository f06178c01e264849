"""The renames that a state gateway began lately, in a file: a new process of the gateway knows them.

```
emberkeep-renames 1
<CRC-32C in hex> <JSON of an entry>
```

Lines are appended without fsync: they have to outlive this process, not the machine, as who asks again runs on it too.
A line that a crash cut off, or that does not verify, counts for nothing. A file that cannot be read now is left as it
is and read later; whether a rename was begun is not known until then. The file is begun anew when it has doubled, so
that rewriting takes a constant share of the writing however many renames there are. While the disk takes nothing,
renames are known to this process alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import remove_leftovers, write_file
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.local_state.gateway_ports import Rename

log = structlog.get_logger(__name__)

_HEADER = b"emberkeep-renames 1\n"
_LIFE_MS = 600_000  # beyond that nobody repeats a request: Hadoop's client gives up after some minutes
_LEAST = 2 * 1024**2  # bytes that are not worth a rewrite
_MOST = 20_000  # entries
_PAUSE_MS = 30_000  # in which a disk that refused a line is not asked again
_LOOK_MS = 1000  # in which a file that cannot be read is not read again


class _Entry(Compatible, frozen=True, kw_only=True):
    rename: Rename
    at_ms: int
    void: bool = False


class FileRenameJournal:
    """Implements ``local_state.gateway_ports.RenameJournal``. Any thread may call it."""

    def __init__(self, path: Path, now_ms: Callable[[], int], files: FileOps = SYSTEM_FILES) -> None:
        """``path``: in a directory of this gateway alone."""
        self._path = path
        self._now_ms = now_ms
        self._files = files
        self._lock = threading.Lock()
        self._begun: OrderedDict[Rename, int] = OrderedDict()  # when, oldest first
        self._file = -1  # none: everything is written anew before the next line
        self._largest = 0  # bytes, then only what is young is written anew
        self._failed_ms: int | None = None  # when the disk refused something
        self._closed = False
        self._unread_until: int | None = None  # while the file cannot be read: until when anything in it counts
        self._next_look_ms = 0
        with self._lock:
            self._read()
            if self._unread_until is None:
                with self._failing():
                    self._begin_anew()

    def begin(self, rename: Rename) -> bool:
        with self._lock:
            now = self._now_ms()
            self._begun.pop(rename, None)
            self._begun[rename] = now
            while len(self._begun) > _MOST:
                self._begun.popitem(last=False)
            return self._append(_Entry(rename=rename, at_ms=now))

    def void(self, rename: Rename) -> bool:
        with self._lock:
            if self._begun.pop(rename, None) is None:
                return True
            return self._append(_Entry(rename=rename, at_ms=self._now_ms(), void=True))

    def knows(self, rename: Rename) -> bool:
        with self._lock:
            if rename not in self._begun and self._is_unread():
                raise Unavailable(
                    f"{self._path} cannot be read now: it is not known whether {rename.source} was renamed",
                    hint="check that disk",
                )
            begun = self._begun.get(rename)
            return begun is not None and self._now_ms() - begun < _LIFE_MS

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._closed = True
            self._close_file()

    def _append(self, entry: _Entry) -> bool:
        """Whether it is in the file. The entry is in memory by now, or not there any more if it is void."""
        if self._closed or self._is_paused() or self._is_unread():
            return False
        with self._failing():
            if self._file < 0 or os.fstat(self._file).st_size > self._largest:
                self._begin_anew()
            else:
                self._files.write(self._file, _line(entry))
        return self._failed_ms is None

    def _begin_anew(self) -> None:
        """A file with what is young, as it is in memory, opened for appending. Raises OSError, Fatal."""
        youngest = self._now_ms() - _LIFE_MS
        for rename, at_ms in list(self._begun.items()):
            if at_ms < youngest:
                del self._begun[rename]
        lines = [_line(_Entry(rename=rename, at_ms=at_ms)) for rename, at_ms in self._begun.items()]
        data = _HEADER + b"".join(lines)
        write_file(self._path, data, files=self._files)
        file = self._files.extend(str(self._path))
        self._close_file()  # only now: nobody else's file may get its number while this one counts
        self._file, self._largest = file, max(_LEAST, 2 * len(data))

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    # --- a disk that fails --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Once the disk refuses something, everything is written anew when it is tried again."""
        try:
            yield
        except (OSError, Fatal) as error:
            if self._failed_ms is None:
                log.warning(
                    "renames cannot be noted: one whose answer gets lost as this process ends counts as not done",
                    file=str(self._path),
                    reason=str(error),
                )
            self._failed_ms = self._now_ms()
            self._close_file()
        else:
            if self._failed_ms is not None:
                log.info("renames are noted again", file=str(self._path))
            self._failed_ms = None

    def _is_paused(self) -> bool:
        return self._failed_ms is not None and 0 <= self._now_ms() - self._failed_ms < _PAUSE_MS

    def _is_unread(self) -> bool:
        """Whether the file may hold renames that are not known here; tries to read it."""
        if self._unread_until is None:
            return False
        now = self._now_ms()
        if now >= self._unread_until:
            self._unread_until = None
        elif now >= self._next_look_ms:
            self._read()
        return self._unread_until is not None

    def _read(self) -> None:
        """Learn what the file holds, beside what has begun in this process. The file stays where that fails."""
        with contextlib.suppress(OSError):
            remove_leftovers(self._path)
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = _HEADER
        except OSError as error:
            now = self._now_ms()
            self._next_look_ms = now + _LOOK_MS
            if self._unread_until is None:
                self._unread_until = now + _LIFE_MS
                log.warning("the journal of renames cannot be read now", file=str(self._path), reason=str(error))
            return
        self._unread_until = None
        if not data.startswith(_HEADER):
            log.warning(
                "the journal of renames is not in the form of this release; it is begun anew", file=str(self._path)
            )
            return
        here = list(self._begun.items())
        for line in data.removeprefix(_HEADER).splitlines():
            entry = _entry(line)
            if entry is None:
                continue
            self._begun.pop(entry.rename, None)
            if not entry.void:
                self._begun[entry.rename] = entry.at_ms
        for rename, at_ms in here:
            self._begun.pop(rename, None)
            self._begun[rename] = at_ms


def _line(entry: _Entry) -> bytes:
    data = msgspec.json.encode(entry)
    return b"%08x %s\n" % (google_crc32c.value(data), data)


def _entry(line: bytes) -> _Entry | None:
    checksum, _, data = line.partition(b" ")
    if checksum != b"%08x" % google_crc32c.value(data):
        return None
    try:
        return msgspec.json.decode(data, type=_Entry)
    except msgspec.DecodeError:
        return None
