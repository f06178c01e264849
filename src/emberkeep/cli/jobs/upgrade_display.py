"""Shows the progress of an upgrade."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo

_SHOW_AGAIN = 10.0  # seconds between two lines of the same phase


def continues(state: UpgradeInfo) -> str:
    """Return what becomes of an upgrade that nobody waits for any more."""
    if state.phase.is_final:
        return f"the upgrade has ended: {state.text}"
    return f"the upgrade continues: `emberkeep upgrade {state.old_job[:8]}` follows it, --cancel goes back"


class UpgradeDisplay:
    """Print a line for each new phase, and at intervals for news within a phase."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._shown: tuple[object, str] = (None, "")
        self._shown_at = 0.0

    def show(self, state: UpgradeInfo) -> None:
        if state.phase.is_final:
            return  # printed with the result
        now = time.monotonic()
        if (state.phase, state.text) == self._shown:
            return
        if state.phase is self._shown[0] and now - self._shown_at < _SHOW_AGAIN:
            return
        self._shown, self._shown_at = (state.phase, state.text), now
        self._say(state.text)
