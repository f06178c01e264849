"""Print one line per event, and on a terminal one live line of progress."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

_PLAIN_INTERVAL = 5.0  # seconds between two progress lines where the output is no terminal


class Screen:
    """Context manager; times are seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._shown = -_PLAIN_INTERVAL
        self._last = ""

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def event(self, text: str, style: str = "") -> None:
        """Print a line that stays."""
        self._console.print(Text(f"{self.seconds:6.1f} s  ", style="dim") + Text(text, style=style), soft_wrap=True)
        sys.stdout.flush()

    def progress(self, text: str) -> None:
        """Show progress: in place on a terminal, else in a new line every few seconds."""
        if self._console.is_terminal:
            self._live.update(Text(f"{self.seconds:6.1f} s  {text}", style="cyan"))
        elif text != self._last and self.seconds - self._shown >= _PLAIN_INTERVAL:
            self._shown, self._last = self.seconds, text
            self.event(text)
