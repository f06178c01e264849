"""Writes readings of weather stations as JSON lines: whole files, in the order of their times, one reading a second.

    python feed.py DIRECTORY --first 0 --count 60

Readings are made up, and the same for the same numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

START = 1_767_225_600  # 2026-01-01T00:00:00Z
STATIONS = ("Arkona", "Brocken", "Zugspitze")
PER_FILE = 20


def reading(number: int) -> dict[str, object]:
    """Reading ``number``, from 0."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + number))
    return {"station": STATIONS[number * number % 7 % 3], "at": at, "celsius": number * 37 % 41 - 12}


def write(directory: Path, first: int, count: int) -> None:
    """Readings ``first`` to ``first + count - 1``; a file appears as a whole."""
    directory.mkdir(parents=True, exist_ok=True)
    for begin in range(first, first + count, PER_FILE):
        numbers = range(begin, min(begin + PER_FILE, first + count))
        aside = directory / f".{begin:08}"
        aside.write_text("".join(json.dumps(reading(number)) + "\n" for number in numbers), encoding="utf-8")
        aside.rename(directory / f"{begin:08}.json")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write readings of weather stations.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    given = parser.parse_args()
    write(given.directory, given.first, given.count)


if __name__ == "__main__":
    main()
