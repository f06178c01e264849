"""Compares what versions 1 and 2 have written with what a batch over all readings gives: python verify.py DIRECTORY

Every window has to be there once, with all its readings, whichever version has written it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

WIDTH = 10  # seconds


def rows(directory: Path) -> Iterator[dict[str, Any]]:
    """Of the files that Spark's file sink has committed: its log names them, others are left over from failures."""
    log = directory / "_spark_metadata"
    newest = [path for path in log.iterdir() if path.name.isdigit() or path.name.endswith(".compact")]
    committed = {Path(json.loads(line)["path"]).name for path in newest for line in path.read_text().splitlines()[1:]}
    for name in sorted(committed):
        for line in (directory / name).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def seconds(text: str) -> int:
    """Unix seconds of "2026-01-01T00:00:00Z"; Spark writes times with the offset of the session's zone."""
    return int(datetime.fromisoformat(text).timestamp())


def expected(readings: list[dict[str, Any]]) -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
    """Readings per window (its start, station), and readings with frost (time, station)."""
    windows, frost = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for each in readings:
        at = seconds(each["at"])
        windows[at // WIDTH * WIDTH, each["station"].upper()] += 1
        if each["celsius"] < 0:
            frost[at, each["station"]] += 1
    return windows, frost


def problems(place: Path) -> list[str]:
    """What is missing, wrong or there twice."""
    readings = [json.loads(line) for path in sorted(place.glob("in/*.json")) for line in path.read_text().splitlines()]
    windows, frost = expected(readings)
    written: Counter[tuple[int, str]] = Counter()
    found: list[str] = []
    for row in rows(place / "windows"):
        key = seconds(row["start"]), row["station"].upper()
        if key in written:
            found.append(f"window {key} was written twice")
        written[key] += row["readings"]
    for key in windows | written:
        if written[key] != windows[key]:
            found.append(f"window {key}: {written[key]} readings instead of {windows[key]}")
    seen = Counter((seconds(row["at"]), row["station"]) for row in rows(place / "frost"))
    for key in frost | seen:
        if seen[key] != frost[key]:
            found.append(f"frost {key}: {seen[key]} times instead of {frost[key]}")
    return found


def main() -> int:
    found = problems(Path(sys.argv[1]))
    for problem in found:
        print(problem)
    print("every window once, with all its readings" if not found else f"{len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
