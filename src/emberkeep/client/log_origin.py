"""Tell whether a daemon's log is still the same file: after a takeover, the new leader's is in its place."""

from __future__ import annotations

from emberkeep.client.calls.logs import LogRead

HEAD_SIZE = 256  # bytes; the first line of a log has the time and names the process


class LogOrigin:
    """The first bytes of a log. A log only grows, so one that starts in another way is another log."""

    def __init__(self) -> None:
        self._head = b""

    def is_new(self, start: LogRead) -> bool:
        """Record how the log starts now: ``start`` has its first bytes. Return True if it is another log than before.

        Nothing that was read from the log before this is known to be of the one or of the other.
        """
        before, self._head = self._head, start.data
        return not start.data.startswith(before)
