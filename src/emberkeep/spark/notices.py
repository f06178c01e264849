"""Single-line messages to the user on stderr, between the script's own output."""

from __future__ import annotations

import threading

from emberkeep.base.processes.standard_streams import say


class Notices:
    """Writer of messages to stderr. Each distinct text appears once per process."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        say(f"emberkeep: {text}")
