"""Results as a table for people or as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

_PIPE_WIDTH = 10_000  # nothing is cut off for programs


class OutputFormat(Enum):
    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """``value``: anything msgspec can encode; a REST body keeps the API's field names."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns under their names. A terminal's width is kept; elsewhere nothing is shortened."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # soft_wrap would pad; without a terminal the width only has to be large enough.
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False).print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """One named value per line; empty ones are left out."""
    width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            lines = value.splitlines()
            print(f"{name + ':':<{width + 1}} {lines[0]}")
            for line in lines[1:]:
                print(f"{'':<{width + 1}} {line}")
