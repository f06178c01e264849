"""Notices that more slots are guaranteed than the cluster has. That is no error: task managers may be added later."""

from __future__ import annotations

from typing import Final

from emberkeep.slots.reclaim.terms import GUARANTEES_KEY

PATIENCE: Final = 60.0  # seconds: after a start, task managers register one by one


class Coverage:
    """Whether ``guaranteed`` slots exist."""

    def __init__(self, guaranteed: int) -> None:
        self._guaranteed = guaranteed
        self._lacks_since: float | None = None
        self._is_said = False

    def review(self, slots: int, now: float) -> str:
        """Return a warning, once for each time that it becomes true; "" otherwise. ``slots``: of the whole cluster."""
        if slots >= self._guaranteed:
            self._lacks_since, self._is_said = None, False
            return ""
        if self._lacks_since is None:
            self._lacks_since = now
        if self._is_said or now - self._lacks_since < PATIENCE:
            return ""
        self._is_said = True
        return (
            f"namespaces are guaranteed {self._guaranteed} slots in all ({GUARANTEES_KEY}), and the cluster has {slots}"
        )
