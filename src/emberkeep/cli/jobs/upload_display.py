"""Progress of an upload: a bar on a terminal, lines elsewhere; for a short upload, only the names of the files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from emberkeep.cli.wording import byte_count

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LONG = 8 * 1024**2  # bytes; a smaller upload ends before a bar would help
_LINE_EVERY = 10.0  # seconds


class UploadDisplay:
    """Implements ``client.submission.blob_upload.UploadProgress``. ``notice`` prints a line; ``quiet``: no output."""

    def __init__(self, notice: Callable[[str], None], *, quiet: bool) -> None:
        self._notice = notice
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._done = 0
        self._told_at = 0.0
        self._named: set[str] = set()

    def begin(self, files: int, size: int) -> None:
        self.end()
        self._total, self._done, self._told_at = size, 0, time.monotonic()
        if self._live and size >= _LONG:
            self._start_bar(size)

    def file(self, name: str) -> None:
        if not self._quiet and name not in self._named:
            self._named.add(name)
            self._notice(f"uploading {name}")

    def sent(self, count: int) -> None:
        self._done += count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif not self._quiet and time.monotonic() - self._told_at >= _LINE_EVERY:
            self._told_at = time.monotonic()
            self._notice(f"uploaded {byte_count(self._done)} of {byte_count(self._total)}")

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _start_bar(self, size: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        self._bar = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("upload", total=size)
