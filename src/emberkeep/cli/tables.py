"""Print results, as a table for people or as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

from emberkeep.base.inert_text import inert, inert_json
from emberkeep.cli.messages import print_line

_PIPE_WIDTH = 10_000  # columns; so wide that no cell is shortened for programs


class OutputFormat(Enum):
    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print ``value``, anything that msgspec can encode, as JSON. A REST body keeps the API's field names."""
    import msgspec

    sys.stdout.write(inert_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under the names of their columns. Cells are shortened only to fit the width of a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(inert(cell)) for cell in row))
    # Rich's soft_wrap would pad cells. Without a terminal, use a width that is always large enough.
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False).print(table)


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print each named value on a line of its own; leave out empty values."""
    width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            lines = inert(value).split("\n")
            print_line(f"{name + ':':<{width + 1}} {lines[0]}")
            for line in lines[1:]:
                print_line(f"{'':<{width + 1}} {line}")
