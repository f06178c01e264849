"""What the chain of session windows has to have written, computed with pandas from all flights at once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from examples.flights import verify
from tests.integration.hosts.flights import Pipeline

_GAP = pd.Timedelta(seconds=21630)
_WATERMARK = pd.Timedelta(days=5)
_VALUES = ["rotations", "legs", "longest"]


def _expected(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the values of each day that is closed, by day."""
    flights = flights.assign(aircraft=flights["tailnum"].fillna("unknown")).sort_values(["aircraft", "sched_dep"])
    apart = flights.groupby("aircraft")["sched_dep"].diff()
    begins = apart.isna() | (apart > _GAP)
    rotations = flights.groupby(begins.cumsum())["sched_dep"].agg(last="max", legs="size")
    ends = rotations["last"] + _GAP - pd.Timedelta(microseconds=1)
    days = rotations.assign(day=ends.dt.floor("D")).groupby("day")["legs"].agg(["size", "sum", "max"])
    days.columns = pd.Index(_VALUES)
    return days[days.index + pd.Timedelta(days=1) <= flights["sched_dep"].max() - _WATERMARK]


def _problems(flights: Path, output: Path) -> str:
    expected = _expected(verify.read_input(flights))
    tables = [pq.ParquetFile(file).read().to_pandas() for file in sorted(output.glob("batch=*/*.parquet"))]
    found = pd.concat(tables)
    found = found.assign(day=pd.to_datetime(found["day"], utc=True)).set_index("day").sort_index()
    assert len(expected) > 360, "the flights are those of a year"
    if repeated := found.index[found.index.duplicated()].tolist():
        return f"days that come twice: {repeated}"
    if missing := expected.index.symmetric_difference(found.index).tolist():
        return f"days that are missing, or should not be there: {missing}"
    different = expected.index[(expected[_VALUES] != found[_VALUES]).any(axis=1)]
    return "" if different.empty else f"{expected.loc[different]} is expected, {found.loc[different]} was found"


ROTATIONS = Pipeline(Path(__file__).with_name("session_script.py"), _problems)
