"""Where something that changes is shown: in place on a terminal, or one after the other in a file or a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from emberkeep.base.inert_text import inert
from emberkeep.cli.messages import say

if TYPE_CHECKING:
    from rich.console import RenderableType

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")


class Surface(Protocol[T_contra]):
    """A place to show values. Use it as a context: what it has changed about the terminal ends with that."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, value: T_contra) -> None: ...

    def show_problem(self, problem: str) -> None:
        """Show that there is no newer value, and why."""


def is_live_terminal() -> bool:
    """True if standard output is a terminal on which text can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Screen(Generic[T]):
    """The terminal's other screen, with a headline above the newest value. The first screen comes back at the end."""

    def __init__(self, title: str, render: Callable[[T], RenderableType]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title, self._render = title, render
        self._body: RenderableType = "waiting for the JobManager …"
        self._shown_at = ""
        self._live = Live(console=Console(highlight=False), screen=True, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> object:
        self._live.__enter__()
        self._draw("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, value: T) -> None:
        self._body, self._shown_at = self._render(value), time.strftime("%H:%M:%S")
        self._draw("")

    def show_problem(self, problem: str) -> None:
        self._draw(f"{problem}; shown as it was at {self._shown_at}" if self._shown_at else problem)

    def _draw(self, problem: str) -> None:
        from rich.console import Group
        from rich.text import Text

        head = Text(inert(f"{self._title} · {self._shown_at or time.strftime('%H:%M:%S')} · Ctrl-C ends"), style="dim")
        problem_line = [Text(inert(problem), style="bold red")] if problem else []
        self._live.update(Group(head, *problem_line, Text(), self._body), refresh=True)


class Printout(Generic[T]):
    """Standard output, to which each value is printed that differs from the one before."""

    def __init__(self, text: Callable[[T], str], separator: str) -> None:
        self._text, self._separator = text, separator
        self._shown: str | None = None
        self._last_problem = ""

    def __enter__(self) -> object:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, value: T) -> None:
        text, self._last_problem = self._text(value), ""
        if text != self._shown:
            sys.stdout.write(text if self._shown is None else self._separator + text)
            sys.stdout.flush()
            self._shown = text

    def show_problem(self, problem: str) -> None:
        if problem != self._last_problem:
            say(problem)
            self._last_problem = problem
