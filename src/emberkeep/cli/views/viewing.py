"""The options ``--output`` and ``--watch`` of listing and info commands, and what they do."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from cyclopts import Parameter

from emberkeep.cli.cluster_options import ClusterOptions, with_client
from emberkeep.cli.parameters import Output
from emberkeep.cli.tables import OutputFormat, print_data
from emberkeep.cli.views.repetition import INTERVAL, repeat
from emberkeep.cli.views.surfaces import Printout, Screen, is_live_terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from emberkeep.client.rest_client import RestClient

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Viewing:
    """Options that say how a result is shown."""

    output: Output = OutputFormat.TABLE
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], negative=())] = False
    "Show it again whenever it has changed, until Ctrl-C: in place on a terminal, else one after the other."

    @property
    def is_wide(self) -> bool:
        return self.output is OutputFormat.WIDE


DEFAULT_VIEWING = Viewing()


@dataclass(frozen=True)
class View(Generic[T]):
    """How a value is shown. ``text`` prints it for people, with further columns if its second argument is true.

    ``data`` returns what programs get.
    """

    text: Callable[[T, bool], None]
    data: Callable[[T], Any]


def as_it_is(value: Any) -> Any:
    return value


def show(
    cluster: ClusterOptions,
    viewing: Viewing,
    read: Callable[[RestClient], Awaitable[T]],
    text: Callable[[T, bool], None],
    data: Callable[[T], Any] = as_it_is,
) -> T | None:
    """Show what ``read`` returns, as ``viewing`` says, and return it. None after ``--watch``, which Ctrl-C ends."""
    return with_client(cluster.require(), lambda client: show_result(viewing, lambda: read(client), View(text, data)))


async def show_result(viewing: Viewing, read: Callable[[], Awaitable[T]], view: View[T]) -> T | None:
    """Do what ``show`` does, with a ``read`` that needs no client."""
    if viewing.watch:
        await repeat(read, _surface(viewing, view))
        return None
    value = await read()
    print_view(viewing.output, view, value)
    return value


def print_view(output: OutputFormat, view: View[T], value: T) -> None:
    """Print a value once."""
    if output.is_data:
        print_data(view.data(value), output)
    elif output is OutputFormat.WIDE:
        sys.stdout.write(_captured(lambda: view.text(value, True), _Page(terminal=False)))
    else:
        view.text(value, False)


def _surface(viewing: Viewing, view: View[T]) -> Screen[T] | Printout[T]:
    if is_live_terminal() and not viewing.output.is_data:
        from rich.text import Text

        def picture(value: T) -> RenderableType:
            page = _Page(terminal=not viewing.is_wide)
            return Text.from_ansi(_captured(lambda: view.text(value, viewing.is_wide), page, errors=page))

        return Screen(f"every {INTERVAL:g} s", picture)
    separator = "---\n" if viewing.output is OutputFormat.YAML else "" if viewing.output.is_data else "\n"

    def written(value: T) -> str:
        return _captured(lambda: print_view(viewing.output, view, value), _Page(terminal=False))

    return Printout(written, separator)


class _Page(io.StringIO):
    """Takes the place of standard output. ``terminal``: tables fit the terminal's width and have its styles."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _captured(write: Callable[[], None], page: _Page, errors: _Page | None = None) -> str:
    """Return what ``write`` prints on standard output; with ``errors``, also what it prints on standard error."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(page))
        if errors is not None:
            stack.enter_context(contextlib.redirect_stderr(errors))
        write()
    return page.getvalue()
