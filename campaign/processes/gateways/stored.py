"""Judges what a job has stored through state gateways, by the files that the durable store has in the end.

A gateway promises that what it has acknowledged is there, that a name is created only once, and that no older attempt
changes anything that it asks for once a request of a newer attempt's driver was answered. See docs/local-state.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from campaign.processes.deeds import Deed

OVERTAKEN = "FileAlreadyExistsException"  # another attempt has stored the entry
FENCED = "AccessControlException"  # a newer attempt has begun


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of ``campaign.processes.gateways.job``. ``asked``: when its upload began, by the history's clock.

    ``name``: that of the file. ``attempt``: 0 if the file is damaged.
    """

    name: str
    attempt: int = 0
    number: int = 0
    asked: float = 0.0

    @property
    def is_temporary(self) -> bool:
        return not self.name.isdecimal()


class _Content(msgspec.Struct, frozen=True):
    attempt: int
    number: int
    asked: float


def stored_directory(place: Path) -> Path:
    """Return the root of a job's durable store. ``place``: the job's directory."""
    return place / "state"


def read_stored(place: Path) -> tuple[StoredEntry, ...]:
    """Return what a job has stored, entries and temporary files."""
    entries = stored_directory(place) / "entries"
    return tuple(_read(path) for path in sorted(entries.iterdir())) if entries.exists() else ()


def _read(path: Path) -> StoredEntry:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except msgspec.DecodeError:
        return StoredEntry(name=path.name)
    return StoredEntry(name=path.name, attempt=content.attempt, number=content.number, asked=content.asked)


def judge_stored(deeds: Sequence[Deed], found: Sequence[StoredEntry]) -> list[str]:
    """Return the violations of one job. ``found``: what its durable store has in the end."""
    return [
        *(f"the stored file {each.name} is damaged" for each in found if not each.attempt),
        *_lost(deeds, found),
        *_doubled(found),
        *_out_of_order(found),
        *_late(deeds, found),
        *_refused(deeds, found),
    ]


def _lost(deeds: Sequence[Deed], found: Sequence[StoredEntry]) -> list[str]:
    there = {(each.attempt, each.number, each.asked): each.name for each in found if not each.is_temporary}
    return [
        f"entry {deed.number} of attempt {deed.attempt} was acknowledged at {deed.at:.3f}, and is not stored"
        for deed in deeds
        if deed.what == "stored" and there.get((deed.attempt, deed.number, deed.asked)) != str(deed.number)
    ]


def _doubled(found: Sequence[StoredEntry]) -> list[str]:
    times = Counter((each.attempt, each.number, each.asked) for each in found if each.attempt and not each.is_temporary)
    return [
        f"entry {number} of attempt {attempt} is stored {count} times"
        for (attempt, number, _), count in times.items()
        if count > 1
    ]


def _out_of_order(found: Sequence[StoredEntry]) -> list[str]:
    """Judge that entries follow each other without a gap, and none of an attempt follows one of a newer attempt."""
    entries = sorted((each for each in found if not each.is_temporary), key=lambda each: int(each.name))
    numbers = [int(each.name) for each in entries]
    gaps = [number for number in range(1, max(numbers, default=0)) if number not in numbers]
    return [
        *(f"entry {number} is missing, and later ones are stored" for number in gaps),
        *(
            f"entry {after.name} of attempt {after.attempt} follows one of attempt {before.attempt}"
            for before, after in pairwise(entries)
            if 0 < after.attempt < before.attempt
        ),
    ]


def _refused(deeds: Sequence[Deed], found: Sequence[StoredEntry]) -> list[str]:
    """Judge that no attempt was refused what its own earlier request, whose reply was lost, had done."""
    there = {(each.attempt, each.number, each.asked) for each in found if not each.is_temporary}
    renaming: dict[int, Deed] = {}
    refused = []
    for deed in deeds:
        if deed.what == "renaming":
            renaming[deed.attempt] = deed
        elif deed.what == "refused" and deed.why not in (OVERTAKEN, FENCED):
            refused.append(f"attempt {deed.attempt} was refused at {deed.at:.3f} with {deed.why}")
        elif deed.what == "refused" and deed.why == OVERTAKEN:
            asked = renaming.get(deed.attempt)
            if asked is not None and (asked.attempt, asked.number, asked.asked) in there:
                refused.append(
                    f"attempt {deed.attempt} was refused to rename entry {asked.number}, which its own request had done"
                )
    return refused


def _late(deeds: Sequence[Deed], found: Sequence[StoredEntry]) -> list[str]:
    """Judge that an attempt is refused what it asks for once the driver of a newer attempt was admitted.

    What was under way then may still be stored.
    """
    admitted: dict[int, float] = {}
    renaming: dict[tuple[int, int, float], float] = {}
    asked: dict[int, Deed] = {}
    overtaken = []  # renames that were not refused as those of an attempt that is over
    for deed in deeds:
        if deed.what == "admitted":
            admitted.setdefault(deed.attempt, deed.at)
        elif deed.what == "renaming":
            renaming[deed.attempt, deed.number, deed.asked] = deed.at
            asked[deed.attempt] = deed
        elif deed.what == "refused" and deed.why == OVERTAKEN and deed.attempt in asked:
            overtaken.append(asked[deed.attempt])

    def newer(attempt: int) -> float:
        """Return when a newer attempt was admitted first."""
        return min((at for other, at in admitted.items() if other > attempt > 0), default=math.inf)

    late = [
        f"attempt {deed.attempt} asked at {deed.at:.3f} to rename entry {deed.number}, and was not refused as an "
        f"attempt that is over, but a newer attempt was admitted at {newer(deed.attempt):.3f}"
        for deed in overtaken
        if deed.at > newer(deed.attempt)
    ]
    for each in found:
        begun = each.asked if each.is_temporary else renaming.get((each.attempt, each.number, each.asked), 0.0)
        if begun > newer(each.attempt):
            late.append(
                f"attempt {each.attempt} has stored {each.name}, asked for at {begun:.3f}, but a newer attempt was "
                f"admitted at {newer(each.attempt):.3f}"
            )
    return late
