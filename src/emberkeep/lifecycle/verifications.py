"""Remember which savepoints were read back, when, and what was found. Pure.

A verification is divided into requests, each for some files of the manifest's list, so that each of them ends soon.
Only a savepoint whose files were all read counts as verified. The results are those of one leader: they are not stored.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from emberkeep.lifecycle.locations import place_key

MOST_KEPT: Final = 1000  # verifications, and unfinished ones


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found when all of a savepoint was read.

    ``problems``: the number of missing or changed files; ``problem``: the first, in words. ``warning``: why a job could
    nevertheless fail to start from it.
    """

    time_ms: int
    files: int
    size: int
    problems: int = 0
    problem: str = ""
    warning: str = ""


class ReadFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Result of reading ``files`` files from number ``first`` on. ``total``: how many files the savepoint has."""

    first: int
    files: int
    total: int
    size: int
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Verifications:
    """The newest verifications, at most MOST_KEPT."""

    def __init__(self) -> None:
        self._done: OrderedDict[tuple[str, str, str], Verification] = OrderedDict()
        self._begun: OrderedDict[tuple[str, str, str], Verification] = OrderedDict()

    def of(self, path: str) -> Verification | None:
        """Return the newest complete verification of the savepoint at ``path``; None if there is none."""
        return self._done.get(place_key(path))

    def note(self, path: str, read: ReadFiles, now_ms: int) -> None:
        """Note the result of one request.

        It continues those before it if it begins where they have ended, and is ignored if files between them are
        missing.
        """
        key = place_key(path)
        before = None if read.first == 0 else self._begun.pop(key, None)
        if read.first != (0 if before is None else before.files):
            return
        found = _joined(before, read, now_ms)
        if found.files >= read.total:
            self._begun.pop(key, None)
            _keep(self._done, key, found)
        else:
            _keep(self._begun, key, found)

    def note_absent(self, path: str, problem: str, now_ms: int) -> None:
        """Note that no savepoint was found at ``path``."""
        _keep(self._done, place_key(path), Verification(time_ms=now_ms, files=0, size=0, problems=1, problem=problem))

    def forget(self, path: str) -> None:
        """Forget what is known of the savepoint at ``path``: it has been deleted."""
        self._done.pop(place_key(path), None)
        self._begun.pop(place_key(path), None)


def _joined(before: Verification | None, read: ReadFiles, now_ms: int) -> Verification:
    known = before or Verification(time_ms=now_ms, files=0, size=0)
    return Verification(
        time_ms=now_ms,
        files=known.files + read.files,
        size=known.size + read.size,
        problems=known.problems + len(read.problems),
        problem=known.problem or next(iter(read.problems), ""),
        warning=next(iter(read.warnings), ""),
    )


def _keep(
    kept: OrderedDict[tuple[str, str, str], Verification], key: tuple[str, str, str], found: Verification
) -> None:
    kept[key] = found
    kept.move_to_end(key)
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
