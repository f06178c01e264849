"""Show a job that is followed: pass its output through unchanged, keep a status line below it."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from emberkeep.base.inert_text import inert
from emberkeep.cli.messages import say, write_bytes
from emberkeep.cli.wording import SHORT_ID, executors_registered, status_text
from emberkeep.protocol.rest_jobs import JobDetailsInfo

_REDRAW = 0.25  # seconds between updates of the status line
_LONG_WAIT = 3.0  # seconds; a shorter wait gets no line
_USUAL_COLUMNS = 80
_CLEAR = "\r\x1b[2K"


class JobTerminal:
    """Implements ``client.follow.FollowerOutput`` on this process's standard output and error.

    If standard error is a terminal, one line shows the job's state and is redrawn. Otherwise, or if $TERM is "dumb",
    each change of state is printed as a plain line, but not the end: how the job ended is told with the result.
    ``quiet``: print only the job's own output, and errors.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""  # the status line that is on the terminal
        self._told_state = ""
        self._told_waiting = ""
        self._waiting = ""
        self._waiting_since = 0.0
        self._drawn_at = 0.0
        self._at_line_start = True

    @property
    def is_quiet(self) -> bool:
        return self._quiet

    def output(self, data: bytes, *, error: bool) -> None:
        self._hide()
        try:
            write_bytes(sys.stderr if error else sys.stdout, data)
        except OSError as lost:
            raise BrokenPipeError from lost  # EIO, too: the terminal has closed
        self._at_line_start = data.endswith(b"\n")

    def progress(self, job: JobDetailsInfo) -> None:
        if self._live:
            if time.monotonic() - self._drawn_at >= _REDRAW and self._at_line_start:
                self._draw(f"[{job.name} {job.jid[:SHORT_ID]}] {status_text(job, with_rates=True)}")
        elif not self._quiet and not job.state.is_globally_terminal:
            self._tell(job)

    def notice(self, text: str) -> None:
        if not self._quiet:
            self.always(text)

    def always(self, text: str) -> None:
        """Print a notice even if ``quiet``."""
        self._hide()
        if not self._at_line_start:
            with contextlib.suppress(OSError):
                sys.stderr.write("\n")
            self._at_line_start = True
        say(text)

    def close(self) -> None:
        """Remove the status line."""
        self._hide()

    def _tell(self, job: JobDetailsInfo) -> None:
        """Print a line if the state has changed, and one if the job has waited for the same thing for 3 s."""
        state = status_text(job, with_rates=False, with_waiting=False)
        if state != self._told_state:
            self._told_state = state
            say(f"job {job.jid[:SHORT_ID]}: {state}")
        own, now = job.emberkeep, time.monotonic()
        # With dynamic allocation, a job that has executors asks for more again and again, and goes on without them.
        goes_on = own.dynamic_allocation is not None and executors_registered(job) > 0
        waiting = "" if goes_on else own.waiting
        if waiting != self._waiting:
            self._waiting, self._waiting_since = waiting, now
        elif waiting and waiting != self._told_waiting and now - self._waiting_since >= _LONG_WAIT:
            self._told_waiting = waiting
            say(f"job {job.jid[:SHORT_ID]} waits for {waiting}")

    def _draw(self, line: str) -> None:
        self._shown = _fitting(inert(line).replace("\n", " "), _columns())
        self._drawn_at = time.monotonic()
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{_CLEAR}\x1b[2m{self._shown}\x1b[0m")
            sys.stderr.flush()

    def _hide(self) -> None:
        if self._shown:
            self._shown = ""
            with contextlib.suppress(OSError):
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()


def _columns() -> int:
    """Return the width of the terminal at standard error. Standard output may be a file."""
    text = os.environ.get("COLUMNS", "")
    if text.isascii() and text.isdecimal() and len(text) < 6 and int(text):
        return int(text)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):
        return _USUAL_COLUMNS


def _fitting(line: str, columns: int) -> str:
    """Return the line, or its beginning, so that it takes less than ``columns``: letters of some scripts take two."""
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) < columns else f"{set_cell_size(line, max(0, columns - 2)).rstrip()}…"
