"""``python -m campaign.processes.hunt SEED HISTORIES``: play histories of real processes until one fails.

``campaign.planted`` runs it over a copy of the product with a bug. It prints which history has failed, as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import emberkeep
from campaign.planted import Found
from campaign.processes.figures import ProcessFigures
from campaign.processes.level import run

_LONGEST = 24 * 3600.0  # seconds; the number of histories is what counts


def main(seed: int, histories: int) -> None:
    figures = ProcessFigures()

    def is_over() -> bool:
        return bool(figures.failures) or figures.histories >= histories

    def show(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    with tempfile.TemporaryDirectory(prefix="emberkeep-hunt-") as folder:
        asyncio.run(run(figures, seed, Path(folder), time.monotonic() + _LONGEST, show, is_over))
    found, violation = None, ""
    if figures.failures:
        found, violation = figures.failures[0].number + 1, figures.failures[0].violation
    result = Found(str(emberkeep.__file__), found, violation, time.process_time())
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
