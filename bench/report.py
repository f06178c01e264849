"""What a run has found: a table to read, JSON to keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Figure
from emberkeep.base.files.durable import write_file


@dataclass(frozen=True)
class Section:
    """The figures of one measurement, how long it took, and how busy the machine was before and after."""

    name: str
    figures: Sequence[Figure]
    seconds: float
    load_before: float
    load_after: float

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "seconds": round(self.seconds, 1),
            "load_average": [self.load_before, self.load_after],
            "figures": [figure.as_json() for figure in self.figures],
        }


def print_tables(sections: Sequence[Section], machine: dict[str, object]) -> None:
    """Standard output, one table for each section."""
    console = Console(width=None if Console().is_terminal else 120)
    for section in sections:
        load = f"load average {section.load_before:g} before, {section.load_after:g} after"
        table = Table("", "median", "range", "goal", title=section.name, caption=load, title_justify="left")
        for column in table.columns[1:3]:
            column.justify = "right"
        for figure in section.figures:
            table.add_row(*figure.row())
        console.print(table)
    console.print(f"{machine['cores']} cores, {machine['cpu']}, {machine['memory_mb']} MiB; {machine['java']}")


def write_json(path: Path, sections: Sequence[Section], machine: dict[str, object], repetitions: int) -> None:
    """Replace ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "format": "emberkeep-bench",
        "version": 1,
        "repetitions": repetitions,
        "machine": machine,
        "sections": [section.as_json() for section in sections],
    }
    write_file(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode(), mode=0o644)
