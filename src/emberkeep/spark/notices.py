"""Single-line messages to the user on stderr, between the script's own output."""

from __future__ import annotations

from emberkeep.base.processes.standard_streams import say


class Notices:
    """Writer of messages to stderr. Each distinct text appears once per process."""

    def __init__(self) -> None:
        self._said: dict[str, object] = {}  # by text: the call that says it

    def say(self, text: str) -> None:
        # One step without a lock: a signal handler of the script may interrupt this thread anywhere, and say something.
        this = object()
        if self._said.setdefault(text, this) is this:
            say(f"emberkeep: {text}")
