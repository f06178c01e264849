"""Input files of streams that read a directory."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STEP_NS = 2_000_000  # Spark compares milliseconds


def put_input(path: Path, text: str) -> None:
    """Make a file appear whole, and later than all others in its directory.

    Spark reads files in the order of their times. The kernel gives files that are written within a few milliseconds
    the same time, so a stream could read a later one first, and drop the rows of the earlier one as too late.
    """
    aside = path.parent.parent / f"unfinished-{path.name}"
    aside.write_text(text)
    newest = max((each.stat().st_mtime_ns for each in path.parent.iterdir()), default=0)
    moment = max(time.time_ns(), newest + _STEP_NS)
    os.utime(aside, ns=(moment, moment))
    aside.rename(path)
