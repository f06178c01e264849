"""What was read of files is remembered until the files change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from emberkeep.base.files.errors import cannot_read

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_Version = tuple[int, int, int]  # of a file's content: inode, size, time of the last change


class _Known(NamedTuple, Generic[ValueT]):
    version: _Version
    value: ValueT


class Remembered(Generic[ValueT]):
    """One value for each of at most ``most`` files. Any thread may call the methods."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Path, _Known[ValueT]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path, find: Callable[[], ValueT]) -> ValueT | None:
        """Return what ``find`` returns for a file, which is called if the file has changed since the last time.

        Return None if the file does not exist, or if ``find`` raises FileNotFoundError. Raises Unavailable, and what
        ``find`` raises.
        """
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise cannot_read(path, error) from error
        version = status.st_ino, status.st_size, status.st_mtime_ns
        with self._lock:
            known = self._known.get(path)
            if known is not None and known.version == version:
                self._known.move_to_end(path)
                return known.value
        try:
            value = find()
        except FileNotFoundError:
            return None
        with self._lock:
            remember(self._known, path, _Known(version, value), self._most)
        return value


def remember(known: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """Add a value, and forget those that were used longest ago if there are more than ``most``."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)
