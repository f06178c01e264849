"""Print results, as a table for people or as JSON or YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from emberkeep.base.inert_text import inert, inert_json
from emberkeep.cli.messages import print_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

T = TypeVar("T")

_PIPE_WIDTH = 10_000  # columns; so wide that no cell is shortened for programs


class OutputFormat(Enum):
    """How to print a result. ``wide`` is the table with full ids and further columns, never shortened."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_data(self) -> bool:
        """True for the formats that programs read."""
        return self in (OutputFormat.JSON, OutputFormat.YAML)


def print_data(value: Any, output: OutputFormat) -> None:
    """Print ``value``, anything that msgspec can encode, as JSON or YAML. A REST body keeps the API's field names."""
    import msgspec

    encoded = msgspec.json.encode(value)
    if output is OutputFormat.YAML:
        sys.stdout.write(_yaml(msgspec.json.decode(encoded)))
    else:
        sys.stdout.write(inert_json(msgspec.json.format(encoded, indent=2).decode()) + "\n")


def _yaml(value: Any) -> str:
    """Return ``value`` as YAML. Control characters are escapes, which YAML knows only between double quotes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def scalar(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if inert(text) != text else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, scalar)
    text: str = yaml.dump(value, Dumper=Dumper, allow_unicode=True, sort_keys=False, width=_PIPE_WIDTH)
    return inert_json(text)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without lines. Its cells are inert."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(inert(cell)) for cell in row))
    return table


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under the names of their columns. Cells are shortened only to fit the width of a terminal."""
    print_renderable(text_table(columns, rows))


def print_renderable(renderable: RenderableType) -> None:
    """Print what Rich can render. Without a terminal, lines are as long as they need to be."""
    from rich.console import Console

    # Rich's soft_wrap would pad cells. Without a terminal, use a width that is always large enough.
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False).print(renderable)


def print_entries(
    entries: Sequence[T],
    output: OutputFormat,
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    is_first: bool,
) -> None:
    """Print a log's entries, oldest first: as a table, as a JSON document per line, or as a YAML list.

    Unless ``is_first``, continue what an earlier call has printed.
    """
    if output is OutputFormat.YAML:
        if entries:  # one list, which continues with further entries
            print_data(entries, output)
    elif output is OutputFormat.JSON:
        import msgspec

        for entry in entries:
            sys.stdout.write(inert_json(msgspec.json.encode(entry).decode()) + "\n")
    elif is_first:
        if entries:
            print_table(columns, [row(entry) for entry in entries])
    else:
        for entry in entries:
            print_line("  ".join(row(entry)))
    sys.stdout.flush()


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print each named value on a line of its own; leave out empty values."""
    width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            lines = inert(value).split("\n")
            print_line(f"{name + ':':<{width + 1}} {lines[0]}")
            for line in lines[1:]:
                print_line(f"{'':<{width + 1}} {line}")
