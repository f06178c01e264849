"""The renames that a state gateway began lately, in a file: a new process of the gateway knows them.

```
emberkeep-renames 1
<CRC-32C in hex> <JSON of an entry>
```

Lines are appended without fsync: they have to outlive this process, not the machine, as who asks again runs on it too.
A line that a crash cut off, or that does not verify, counts for nothing. The file is begun anew when it has grown.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import msgspec
import structlog

from emberkeep.base.durable import write_file
from emberkeep.base.errors import Fatal
from emberkeep.local_state.gateway_ports import Rename

log = structlog.get_logger(__name__)

_HEADER = b"emberkeep-renames 1\n"
_LIFE_MS = 600_000  # beyond that nobody repeats a request: Hadoop's client gives up after some minutes
_LARGEST = 2 * 1024**2  # bytes, then only what is young is written anew
_MOST = 20_000  # entries


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rename: Rename
    at_ms: int
    void: bool = False


class FileRenameJournal:
    """Implements ``local_state.gateway_ports.RenameJournal``. Any thread may call it."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        """``path``: in a directory of this gateway alone. Raises Fatal."""
        self._path = path
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._begun: OrderedDict[Rename, int] = OrderedDict()  # when, oldest first
        self._read()
        with self._lock:
            self._file = self._begin_anew()

    def begin(self, rename: Rename) -> None:
        with self._lock:
            now = self._now_ms()
            self._begun.pop(rename, None)
            self._begun[rename] = now
            while len(self._begun) > _MOST:
                self._begun.popitem(last=False)
            self._append(_Entry(rename=rename, at_ms=now))

    def void(self, rename: Rename) -> None:
        with self._lock:
            if self._begun.pop(rename, None) is not None:
                self._append(_Entry(rename=rename, at_ms=self._now_ms(), void=True))

    def knows(self, rename: Rename) -> bool:
        with self._lock:
            begun = self._begun.get(rename)
            return begun is not None and self._now_ms() - begun < _LIFE_MS

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _append(self, entry: _Entry) -> None:
        try:
            if os.fstat(self._file).st_size > _LARGEST:
                os.close(self._file)
                self._file = self._begin_anew()
            os.write(self._file, _line(entry))
        except OSError as error:
            raise Fatal(f"cannot write {self._path}: {error.strerror}", hint="check that disk") from error

    def _begin_anew(self) -> int:
        """A file with the young entries only, opened for appending."""
        youngest = self._now_ms() - _LIFE_MS
        for rename, at_ms in list(self._begun.items()):
            if at_ms < youngest:
                del self._begun[rename]
        lines = [_line(_Entry(rename=rename, at_ms=at_ms)) for rename, at_ms in self._begun.items()]
        write_file(self._path, _HEADER + b"".join(lines))
        try:
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise Fatal(f"cannot open {self._path}: {error.strerror}", hint="check that disk") from error

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise Fatal(f"cannot read {self._path}: {error.strerror}", hint="check that disk") from error
        if not data.startswith(_HEADER):
            log.warning(
                "the journal of renames is not in the form of this release; it is begun anew", file=str(self._path)
            )
            return
        for line in data.removeprefix(_HEADER).splitlines():
            entry = _entry(line)
            if entry is None:
                continue
            self._begun.pop(entry.rename, None)
            if not entry.void:
                self._begun[entry.rename] = entry.at_ms


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
