"""Compares the pipeline's output, row by row, with a batch answer that pandas computes from the same input.

    python examples/flights/verify.py --input DIR --output DIR

Exit code 0: equal. 1: rows are missing, unexpected, written more than once, or different. 2: nothing to compare yet.

The batch answer holds the windows that append mode lets out: those that end at or before the latest event time less
the watermark's delay. The feed's closing row takes part like every other, which leaves exactly one window open: its
own. With --drained that one is expected too.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

# Stated here again, not imported: the check must not depend on the pipeline.
WINDOW = pd.Timedelta(hours=1)
WATERMARK = pd.Timedelta(days=5)
KEYS = ["window_start", "origin", "carrier"]
VALUES = ["flights", "cancelled", "arrived", "dep_delay_sum", "dep_delay_max", "arr_delay_sum", "arr_delay_max"]
SHOWN = 5  # mismatches of each kind that are printed


class NothingToCompareError(Exception):
    """The input or the output is not there or not complete; the message says what is missing."""


@dataclass(frozen=True)
class BatchAnswer:
    """The closed windows (KEYS and VALUES, keys unique), and how much of the input they stand for."""

    windows: pd.DataFrame
    open_windows: int
    rows: int


@dataclass(frozen=True)
class Comparison:
    """Rows that are wrong, each as KEYS and VALUES; `different` has beside each value v the one found, as v_found."""

    windows: int
    missing: pd.DataFrame
    unexpected: pd.DataFrame
    duplicate: pd.DataFrame
    different: pd.DataFrame

    @property
    def mismatches(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.duplicate) + len(self.different)


def read_input(directory: Path) -> pd.DataFrame:
    """All rows of a finished feed. Raises NothingToCompareError when it is not there, or not whole."""
    marker = directory / "_DONE"
    if not marker.exists():
        raise NothingToCompareError(f"the feed into {directory} is not finished: {marker.name} does not exist")
    announced = json.loads(marker.read_text())
    if announced.get("version") != 1:
        raise NothingToCompareError(f"{marker} has version {announced.get('version')}, this program reads version 1")
    files = sorted(directory.glob("*.csv"))
    types = {"flight": "Int64", "dep_delay": "Int64", "arr_delay": "Int64", "tailnum": "string"}
    tables = [pd.read_csv(f, dtype=types, parse_dates=["sched_dep"]) for f in files]
    rows = pd.concat(tables) if tables else pd.DataFrame()
    if (len(files), len(rows)) != (announced["files"], announced["rows"]):
        raise NothingToCompareError(
            f"{directory} holds {len(files)} files with {len(rows)} rows, but its marker says "
            f"{announced['files']} files with {announced['rows']} rows: feed it again"
        )
    return rows


def batch_answer(flights: pd.DataFrame, *, drained: bool = False) -> BatchAnswer:
    """What the pipeline has to have written, from all rows at once. ``drained``: no window is left open."""
    flights = flights.assign(window_start=flights["sched_dep"].dt.floor(WINDOW), cancelled=flights["dep_delay"].isna())
    groups = flights.groupby(KEYS, dropna=False, as_index=False, sort=False)
    windows = groups.agg(
        flights=("sched_dep", "size"),
        cancelled=("cancelled", "sum"),
        arrived=("arr_delay", "count"),
        dep_delay_sum=("dep_delay", "sum"),
        dep_delay_max=("dep_delay", "max"),
        arr_delay_sum=("arr_delay", "sum"),
        arr_delay_max=("arr_delay", "max"),
    )
    closed = windows["window_start"] + WINDOW <= flights["sched_dep"].max() - WATERMARK
    closed |= drained
    return BatchAnswer(_uniform(windows[closed]), int((~closed).sum()), len(flights))


def read_output(directory: Path) -> pd.DataFrame:
    """All rows that the pipeline wrote. Raises NothingToCompareError when there are none, or not as Parquet files."""
    files = sorted(directory.glob("batch=*/*.parquet"))
    if not files:
        raise NothingToCompareError(f"no Parquet file below {directory}/batch=*: run the pipeline first")
    tables = []
    for file in files:
        try:
            # As a single file: a directory name such as batch=3 is no column of the result.
            tables.append(pq.ParquetFile(file).read(columns=KEYS + VALUES))
        except pa.ArrowInvalid as error:
            raise NothingToCompareError(f"{file} cannot be read: {error}") from error
    return _uniform(pa.concat_tables(tables).to_pandas(integer_object_nulls=True))


def compare(expected: pd.DataFrame, found: pd.DataFrame) -> Comparison:
    """Compare by KEYS. Rows that repeat a key are duplicates even when equal; the first of them is compared further."""
    repeated = found.duplicated(KEYS)
    both = expected.merge(found[~repeated], on=KEYS, how="outer", suffixes=("", "_found"), indicator=True)
    matched = both[both["_merge"] == "both"]
    differs = pd.Series(False, index=matched.index)
    for value in VALUES:
        left, right = matched[value], matched[f"{value}_found"]
        differs |= (left.isna() != right.isna()) | left.ne(right).fillna(False)
    found_values = [f"{value}_found" for value in VALUES]
    unexpected = both[both["_merge"] == "right_only"][KEYS + found_values]
    return Comparison(
        windows=len(expected),
        missing=both[both["_merge"] == "left_only"][KEYS + VALUES],
        unexpected=unexpected.rename(columns=dict(zip(found_values, VALUES, strict=True))),
        duplicate=found[repeated],
        different=matched[differs].drop(columns="_merge"),
    )


def _uniform(rows: pd.DataFrame) -> pd.DataFrame:
    """KEYS and VALUES in one set of types, whatever wrote them; a missing number is <NA>."""
    types = {"origin": "string", "carrier": "string", **dict.fromkeys(VALUES, "Int64")}
    rows = rows[KEYS + VALUES].astype(types)
    start = pd.to_datetime(rows["window_start"], utc=True).astype("datetime64[us, UTC]")
    return rows.assign(window_start=start).reset_index(drop=True)


def report(answer: BatchAnswer, result: Comparison) -> str:
    """The comparison in words, with the first mismatches of each kind."""
    lines = [
        f"input: {answer.rows:,} rows, of which {int(answer.windows['flights'].sum()):,} in closed windows",
        f"windows: {result.windows:,} closed ({answer.open_windows} still open)",
        f"mismatches: {result.mismatches:,}",
    ]
    for kind in ("missing", "unexpected", "duplicate", "different"):
        rows = getattr(result, kind)
        if len(rows):
            lines += [f"  {kind}: {len(rows):,}", *(f"    {_show(row)}" for row in rows.head(SHOWN).to_dict("records"))]
    equal = result.mismatches == 0
    lines.append("verdict: EQUAL to the batch answer" if equal else "verdict: DIFFERENT from the batch answer")
    return "\n".join(lines)


def _show(row: dict[str, object]) -> str:
    key = f"{row['window_start']} {row['origin']} {row['carrier']}:"
    changed = [v for v in VALUES if f"{v}_found" in row and str(row[v]) != str(row[f"{v}_found"])]
    if changed:
        return " ".join([key, *(f"{v} {row[v]} expected, {row[f'{v}_found']} found;" for v in changed)]).rstrip(";")
    return " ".join([key, *(f"{v}={row[v]}" for v in VALUES)])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare the pipeline's output with a batch answer.")
    parser.add_argument("--input", type=Path, required=True, help="directory that the feed wrote")
    parser.add_argument("--output", type=Path, required=True, help="directory that the pipeline wrote")
    parser.add_argument("--drained", action="store_true", help="the pipeline was drained: expect no open window")
    options = parser.parse_args(arguments)
    try:
        answer = batch_answer(read_input(options.input), drained=options.drained)
        result = compare(answer.windows, read_output(options.output))
    except NothingToCompareError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 2
    print(report(answer, result))
    return 0 if result.mismatches == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
