"""Answers of the durable store that a client will request in a moment, obtained before it does.

Hadoop's client checks names one after the other before it uses them: the directory and the target of a rename, the
directory of a state store before its listing, a file of that listing before it opens the file. With a far store, each
check would take as long as the work itself. These answers are obtained early:

- The status of a temporary file, when it is stored.
- The status of the name that a temporary file will get, while the temporary file is stored.
- The listing of a state store's directory, while a process asks for the first time whether that directory exists.
- The status of the files that complete a version of a state store, with the listing that names them.

The client decides nothing that the change itself does not decide again: a rename that must not replace a file is
refused by the durable store. So an answer may be _FRESH_SECONDS old, and one about a listing _FRESH_LISTING_SECONDS. It
is given once, and only to the process for which it was obtained. A change of the same name through this gateway makes
it void, and that of a listing any change in the directory.

That a directory exists is remembered for as long, and for all processes of a job.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.local_state.model import Caller, FileKind, FileStatus, StatePath
from emberkeep.local_state.spark_layout import is_store_directory, store_version
from emberkeep.taskmanager.state_gateway.side_calls import SideCall

_FRESH_SECONDS = 5.0
_FRESH_LISTING_SECONDS = 1.0  # a task lists the directory at once; another node may add a version at any time
_REMEMBERED = 4096  # answers of one kind

AnswerT = TypeVar("AnswerT")
Listing = tuple[FileStatus, ...]


@dataclass(frozen=True)
class _Early(Generic[AnswerT]):
    """``asker``: for whom the answer was obtained. ``until``: ``Clock.monotonic`` from which it is out of date."""

    asker: Caller | JobId
    answer: AnswerT
    until: float


class _Answers(Generic[AnswerT]):
    """The newest early answer about each name. Not safe for several threads."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kept: OrderedDict[StatePath, _Early[AnswerT]] = OrderedDict()  # oldest first

    def keep(self, asker: Caller | JobId, path: StatePath, answer: AnswerT) -> None:
        now = self._clock.monotonic()
        self._kept[path] = _Early(asker, answer, now + self._seconds)
        self._kept.move_to_end(path)
        while self._kept and (len(self._kept) > _REMEMBERED or next(iter(self._kept.values())).until <= now):
            self._kept.popitem(last=False)

    def find(self, asker: Caller | JobId, path: StatePath) -> AnswerT | None:
        found = self._kept.get(path)
        if found is None or found.asker != asker or found.until <= self._clock.monotonic():
            return None
        return found.answer

    def take(self, asker: Caller | JobId, path: StatePath) -> AnswerT | None:
        answer = self.find(asker, path)
        if answer is not None:
            del self._kept[path]
        return answer

    def drop(self, path: StatePath) -> None:
        self._kept.pop(path, None)

    def drop_below(self, path: StatePath) -> None:
        begin = f"{path.name}/" if path.name else ""
        for other in [other for other in self._kept if other.root == path.root and other.name.startswith(begin)]:
            del self._kept[other]


class EarlyAnswers:
    """The early answers of one gateway. Any thread may call it."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._directories: _Answers[FileStatus] = _Answers(clock, _FRESH_SECONDS)
        self._targets: _Answers[SideCall[FileStatus]] = _Answers(clock, _FRESH_SECONDS)
        self._written: _Answers[FileStatus] = _Answers(clock, _FRESH_SECONDS)
        self._listings: _Answers[SideCall[Listing]] = _Answers(clock, _FRESH_LISTING_SECONDS)
        self._listed: _Answers[FileStatus] = _Answers(clock, _FRESH_LISTING_SECONDS)
        self._all: tuple[_Answers[Any], ...] = (
            self._directories,
            self._targets,
            self._written,
            self._listings,
            self._listed,
        )
        self._opened: OrderedDict[tuple[Caller, StatePath], None] = OrderedDict()  # see ``opens_store``

    def directory(self, caller: Caller, path: StatePath) -> FileStatus | None:
        """Return the status of a directory that existed a moment ago, or None if that is unknown."""
        with self._lock:
            return self._directories.find(caller.job_id, path)

    def note(self, caller: Caller, path: StatePath, status: FileStatus) -> None:
        """Note a status that the durable store has just returned."""
        if status.kind is FileKind.DIRECTORY:
            with self._lock:
                self._directories.keep(caller.job_id, path, status)

    def expect_rename(self, caller: Caller, target: StatePath, status: SideCall[FileStatus]) -> None:
        """Note the status of the name that the caller will give to a temporary file."""
        with self._lock:
            self._targets.keep(caller, target, status)

    def note_temporary(self, caller: Caller, path: StatePath, status: FileStatus) -> None:
        """Note the status of a temporary file that was just stored for the caller, who will rename it."""
        with self._lock:
            self._written.keep(caller, path, status)

    def before_rename(self, caller: Caller, path: StatePath) -> FileStatus | None:
        """Return the status of the source or the target of a rename, or None if it is unknown. Raises Absent."""
        with self._lock:
            written = self._written.take(caller, path)
            call = self._targets.take(caller, path) if written is None else None
        return _result(call) if written is None else written

    def opens_store(self, caller: Caller, path: StatePath) -> bool:
        """True if ``path`` is the directory of a state store, and the caller asks about it for the first time."""
        if not is_store_directory(path.name):
            return False
        with self._lock:
            known = (caller, path) in self._opened
            self._opened[caller, path] = None
            if len(self._opened) > _REMEMBERED:
                self._opened.popitem(last=False)
        return not known

    def expect_listing(self, caller: Caller, path: StatePath, listing: SideCall[Listing]) -> None:
        """Note the listing of a directory whose status the caller has requested."""
        with self._lock:
            self._listings.keep(caller, path, listing)

    def listing(self, caller: Caller, path: StatePath) -> Listing | None:
        """Return the entries of a directory, or None if they were not obtained. Raises Absent."""
        with self._lock:
            call = self._listings.take(caller, path)
        return _result(call)

    def note_entries(self, caller: Caller, path: StatePath, entries: Iterable[FileStatus]) -> None:
        """Note the entries of a directory, which the caller receives now."""
        files = [entry for entry in entries if entry.kind is FileKind.FILE and store_version(entry.name)]
        with self._lock:
            for entry in files:
                self._listed.keep(caller, StatePath(root=path.root, name=entry.name), entry)

    def listed(self, caller: Caller, path: StatePath) -> FileStatus | None:
        """Return the status of a file in a listing that the caller has just received, or None."""
        with self._lock:
            return self._listed.take(caller, path)

    def changed(self, path: StatePath) -> None:
        """Drop the answers about a file that has changed."""
        directory = StatePath(root=path.root, name=path.name.rpartition("/")[0])
        with self._lock:
            self._listings.drop(directory)
            for answers in self._all:
                answers.drop(path)

    def changed_below(self, path: StatePath) -> None:
        """Drop the answers about a file or directory that is gone, and about all names below it."""
        self.changed(path)
        with self._lock:
            for answers in self._all:
                answers.drop_below(path)


def _result(call: SideCall[AnswerT] | None) -> AnswerT | None:
    """Return the answer; None if there is none, or if the store could not be asked: the caller asks it again."""
    try:
        return None if call is None else call.result()
    except Absent:
        raise
    except EmberkeepError:
        return None
