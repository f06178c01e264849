"""A file of the renames that a state gateway began recently, so that the gateway's next process knows them.

```
emberkeep-renames 1
<CRC-32C in hex> <JSON of an entry>
```

Lines are appended without fsync. They must survive this process but not the machine: a client that repeats a request
runs on the same machine. A line that a crash cut off, or whose checksum is wrong, is ignored. A file that cannot be
read now is left as it is and read later; until then it is unknown whether a rename was begun. The file is rewritten
whenever it has doubled in size, so that rewriting takes a constant share of the writing. While the disk refuses
writes, only this process knows the new renames.

Entries age by the time since the machine's boot, because the wall clock may be set. A time that has not come yet is of
an earlier boot, or of a release that wrote the wall clock's: such an entry is as old as the process that reads it.
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
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import remove_leftovers, write_file
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.local_state.gateway_ports import Rename

log = structlog.get_logger(__name__)

_HEADER = b"emberkeep-renames 1\n"
_LIFE_MS = 600_000  # of an entry; no client repeats a request later: Hadoop's client gives up after some minutes
_LEAST = 2 * 1024**2  # bytes; a smaller file is not rewritten
_MOST = 20_000  # entries
_PAUSE_MS = 30_000  # before writing again to a disk that refused a line
_LOOK_MS = 1000  # before reading again a file that could not be read


class _Entry(Compatible, frozen=True, kw_only=True):
    rename: Rename
    at_ms: int
    void: bool = False


class FileRenameJournal:
    """Recent renames in a file; implements ``local_state.gateway_ports.RenameJournal``. Thread-safe."""

    def __init__(self, path: Path, boot_ms: Callable[[], int], files: FileOps = SYSTEM_FILES) -> None:
        """``path`` is in a directory that no other gateway uses. ``boot_ms``: see ``base.clock``."""
        self._path = path
        self._boot_ms = boot_ms
        self._files = files
        self._lock = threading.Lock()
        self._begun: OrderedDict[Rename, int] = OrderedDict()  # to the time at which each was begun, oldest first
        self._file = -1  # -1: the file must be rewritten before the next line
        self._largest = 0  # bytes; a larger file is rewritten with only the entries that have not expired
        self._failed_ms: int | None = None  # time of the disk's last refusal; None: the last write succeeded
        self._closed = False
        self._unread_until: int | None = None  # set while the file cannot be read: when all of its entries have expired
        self._next_look_ms = 0
        with self._lock:
            self._read()
            if self._unread_until is None:
                with self._failing():
                    self._begin_new_file()

    def begin(self, rename: Rename) -> bool:
        with self._lock:
            now = self._boot_ms()
            self._begun.pop(rename, None)
            self._begun[rename] = now
            while len(self._begun) > _MOST:
                self._begun.popitem(last=False)
            return self._append(_Entry(rename=rename, at_ms=now))

    def void(self, rename: Rename) -> bool:
        with self._lock:
            if self._begun.pop(rename, None) is None:
                return True
            return self._append(_Entry(rename=rename, at_ms=self._boot_ms(), void=True))

    def knows(self, rename: Rename) -> bool:
        with self._lock:
            if rename not in self._begun and self._is_unread():
                raise Unavailable(
                    f"{self._path} cannot be read now: {rename.source} may or may not have been renamed",
                    hint="check that disk",
                )
            begun = self._begun.get(rename)
            return begun is not None and self._boot_ms() - begun < _LIFE_MS

    def close(self) -> None:
        """Close the file. Later renames are known to this process only. Idempotent."""
        with self._lock:
            self._closed = True
            self._close_file()

    def _append(self, entry: _Entry) -> bool:
        """Append ``entry``, which this process's memory already has. True if the file has the entry now.

        False while the disk fails or the file cannot be read, and after ``close``.
        """
        if self._closed or self._is_paused() or self._is_unread():
            return False
        with self._failing():
            if self._file < 0 or os.fstat(self._file).st_size > self._largest:
                self._begin_new_file()
            else:
                self._files.write(self._file, _line(entry))
        return self._failed_ms is None

    def _begin_new_file(self) -> None:
        """Write a new file with the entries in memory that have not expired, and open it to append.

        Raises OSError, Fatal.
        """
        youngest = self._boot_ms() - _LIFE_MS
        for rename, at_ms in list(self._begun.items()):
            if at_ms < youngest:
                del self._begun[rename]
        lines = [_line(_Entry(rename=rename, at_ms=at_ms)) for rename, at_ms in self._begun.items()]
        data = _HEADER + b"".join(lines)
        write_file(self._path, data, files=self._files)
        file = self._files.extend(str(self._path))
        self._close_file()  # only after the new file is open: a closed descriptor's number could be reused elsewhere
        self._file, self._largest = file, max(_LEAST, 2 * len(data))

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    # --- a disk that fails --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Catch and log an error of the disk, and close the file, so that the next write rewrites the whole file."""
        try:
            yield
        except (OSError, Fatal) as error:
            if self._failed_ms is None:
                log.warning(
                    "cannot record renames: if this process ends before it answers a rename, the rename counts as not "
                    "done",
                    file=str(self._path),
                    reason=str(error),
                )
            self._failed_ms = self._boot_ms()
            self._close_file()
        else:
            if self._failed_ms is not None:
                log.info("renames are recorded again", file=str(self._path))
            self._failed_ms = None

    def _is_paused(self) -> bool:
        return self._failed_ms is not None and 0 <= self._boot_ms() - self._failed_ms < _PAUSE_MS

    def _is_unread(self) -> bool:
        """True if the file may hold renames that this process does not know. Tries to read the file, once a second."""
        if self._unread_until is None:
            return False
        now = self._boot_ms()
        if now >= self._unread_until:
            self._unread_until = None
        elif now >= self._next_look_ms:
            self._read()
        return self._unread_until is not None

    def _read(self) -> None:
        """Merge the file's entries into those of this process. A file that cannot be read is left as it is."""
        with contextlib.suppress(OSError):
            remove_leftovers(self._path)
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = _HEADER
        except OSError as error:
            now = self._boot_ms()
            self._next_look_ms = now + _LOOK_MS
            if self._unread_until is None:
                self._unread_until = now + _LIFE_MS
                log.warning("cannot read the journal of renames now", file=str(self._path), reason=str(error))
            return
        self._unread_until = None
        if not data.startswith(_HEADER):
            log.warning(
                "the journal of renames is not in the format of this release, starting a new one", file=str(self._path)
            )
            return
        here, now = list(self._begun.items()), self._boot_ms()
        for line in data.removeprefix(_HEADER).splitlines():
            entry = _entry(line)
            if entry is None:
                continue
            self._begun.pop(entry.rename, None)
            if not entry.void:
                self._begun[entry.rename] = min(entry.at_ms, now)
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
        return from_json(data, _Entry)
    except msgspec.DecodeError:
        return None
