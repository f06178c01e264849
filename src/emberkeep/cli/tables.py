"""Print results, as a table for people or as JSON or YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from emberkeep.base.inert_text import inert, inert_json
from emberkeep.cli.messages import print_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, OverflowMethod, RenderableType, RenderResult

T = TypeVar("T")

_PIPE_WIDTH = 10_000  # columns; so wide that no cell is shortened for programs
_GAP = 2  # spaces between columns
_READABLE = 24  # characters of a cell that are enough to be read


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


class FittedTable:
    """A table without lines, as wide as the place where it is shown. Its cells are inert.

    Where there is too little room, the columns of ``dispensable`` are left out, in that order, until the others have
    enough to be read. Then the widest cells are shortened. If ``wraps``, the last column, often a sentence or a path,
    continues on further lines instead.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        dispensable: Sequence[str] = (),
        *,
        wraps: bool = True,
    ) -> None:
        self._columns = tuple(columns)
        self._rows = [tuple(inert(cell).expandtabs() for cell in row) for row in rows]
        self._dispensable = dispensable
        self._wraps = wraps

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        room = options.max_width
        natural = [self._width(index) for index in range(len(self._columns))]
        shown = self._shown(natural, room)
        widths = fitted([natural[index] for index in shown], room)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for index, width in zip(shown, widths, strict=True):
            wraps = self._wraps and index == shown[-1]
            overflow: OverflowMethod = "fold" if wraps else "ellipsis"
            table.add_column(self._columns[index], no_wrap=not wraps, overflow=overflow, width=width)
        for row in self._rows:
            table.add_row(*(Text(row[index]) for index in shown))
        yield table

    def _shown(self, natural: Sequence[int], room: int) -> list[int]:
        """Return the indexes of the columns that are shown. ``natural``: how wide each is if nothing is shortened."""
        shown = list(range(len(self._columns)))
        for name in self._dispensable:
            if sum(min(natural[index], _READABLE) + _GAP for index in shown) - _GAP <= room:
                break
            if name in self._columns:
                shown.remove(self._columns.index(name))
        return shown

    def _width(self, index: int) -> int:
        """Return how wide the column is if nothing is shortened."""
        from rich.cells import cell_len

        lines = (line for row in self._rows for line in row[index].split("\n"))
        return max(cell_len(self._columns[index]), max(map(cell_len, lines), default=0))


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Return the widths of columns that share ``room``: the widest ones are cut alike, the last one at last.

    >>> fitted([4, 30, 20], 80)
    [4, 30, 20]
    >>> fitted([4, 30, 100], 80)
    [4, 30, 42]
    >>> fitted([4, 90, 40, 100], 80)
    [4, 23, 23, 24]
    """
    if not widths:
        return []
    *others, last = widths
    left = max(1, room - _GAP * len(others))
    most = max(others, default=0)
    while most > 1 and sum(min(width, most) for width in others) > left - min(last, _READABLE):
        most -= 1
    cut = [min(width, most) for width in others]
    return [*cut, max(1, min(last, left - sum(cut)))]


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], dispensable: Sequence[str] = (), *, wraps: bool = True
) -> None:
    """Print rows under the names of their columns. They are fitted only to the width of a terminal: see FittedTable."""
    print_renderable(FittedTable(columns, rows, dispensable, wraps=wraps))


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
    dispensable: Sequence[str] = (),
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
            print_table(columns, [row(entry) for entry in entries], dispensable)
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
