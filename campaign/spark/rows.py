"""The input of the jobs: files of JSON lines, drawn from a seed.

Each row is either in time for every query, however its batches were cut, or so late that every query with a watermark
must drop it. So the right answer is known without Spark's batches.
"""

from __future__ import annotations

import json
import os
import random
import time
from calendar import timegm
from collections.abc import Iterable
from pathlib import Path

import msgspec

START = 1_600_000_000  # Unix time of the first row, a multiple of all windows
STEP = 8  # seconds of event time from one file to the next
DELAY = 15  # seconds of the watermark
SPREAD = 12  # seconds of the rows of one file
BACK = 7  # seconds that rows may be before their file: less than DELAY + STEP - SPREAD, with a margin of two seconds
# A batch holds two files at most, Spark drops late rows by the watermark of the batch before, and the two sides of a
# join may be one file apart: six files back, all of it has counted. 20 s: windows, sessions and a margin.
HOPELESS = 6 * STEP + DELAY + 20
KEYS = "abcde"
MOST_ROWS = 12


class Row(msgspec.Struct, frozen=True):
    """A row of the input. ``t``: Unix seconds; ``n``: number of the event, which duplicates share."""

    k: str
    n: int
    t: int


class Files:
    """Draws the files of one input, one after the other."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._event = 0
        self._before: list[Row] = []
        self.count = 0

    def next(self) -> list[Row]:
        """Return the rows of the next file."""
        chance, base = self._chance, START + STEP * self.count
        rows = [self._row(base + STEP - 2)]  # at least this one moves the watermark
        for _ in range(chance.randint(0, MOST_ROWS)):
            drawn = chance.random()
            if drawn < 0.15 and self._before:
                again = chance.choice(self._before)
                rows.append(again if again.t >= base - BACK else self._row(base))
            elif drawn < 0.25 and base - HOPELESS > START:
                rows.append(self._row(base - HOPELESS - chance.randint(0, min(60, base - HOPELESS - START))))
            elif drawn < 0.4:
                rows.append(self._row(base - chance.randint(0, BACK)))
            else:
                rows.append(self._row(base + chance.randint(0, SPREAD)))
        chance.shuffle(rows)
        # A duplicate of what was dropped as late would be late as well, but is easier not to have.
        self._before = [row for row in rows if row.t >= base - BACK]
        self.count += 1
        return rows

    def _row(self, t: int) -> Row:
        self._event += 1
        return Row(self._chance.choice(KEYS), self._event, max(START, t))


def in_time(files: Iterable[list[Row]]) -> list[Row]:
    """Return the rows that a query with a watermark must count."""
    newest, found = START, list[Row]()
    for rows in files:
        # What is not in time is hopeless: see the module.
        found += [row for row in rows if row.t > newest - DELAY]
        newest = max([newest, *(row.t for row in rows)])
    return found


def write_rows(path: Path, rows: Iterable[Row], number: int) -> None:
    """Write a file that appears as a whole. Spark reads files in the order of their times, so ``number`` is its time.

    Two files of the same millisecond would be read in any order, and rows of the first could be late.
    """
    lines = [json.dumps({"k": row.k, "n": row.n, "t": _text(row.t)}) for row in rows]
    aside = path.with_name(f".{path.name}")
    aside.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    os.utime(aside, (START + number, START + number))
    aside.rename(path)


def read_rows(path: Path) -> list[Row]:
    """Read a file of the input."""
    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    return [Row(line["k"], line["n"], _seconds(line["t"])) for line in lines]


def read_files(directory: Path) -> list[list[Row]]:
    """Read all files of an input, in the order in which they were written."""
    return [read_rows(path) for path in sorted(directory.glob("*.json"))]


def _text(t: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t))


def _seconds(text: str) -> int:
    return timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
