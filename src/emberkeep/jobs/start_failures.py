"""Attempts whose driver could not be started, and when there is no point in another one.

A driver that cannot come up says so before any of its script runs: an import fails, Java or the interpreter is missing,
an archive cannot be unpacked. A restart strategy without a limit would start it for ever. So attempts in a row that
failed so for one reason are counted, whatever the strategy says. The reason may lie on one node: the next attempt is
started on another one where there is one, and the job fails only once the reason was met on two nodes, or where no
other node could take the driver at all. Like the restart strategy's, the count lives as long as the JobManager.
"""

from __future__ import annotations

import re

from emberkeep.base.configuration import options

_NUMBERS = re.compile(r"\d+")


class StartFailures:
    """``most``: attempts in a row for one reason; 0: no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reason = ""
        self._count = 0
        self.nodes: frozenset[str] = frozenset()  # where the newest reason was met

    def failed(self, reason: str, node: str, *, only_node: bool) -> str:
        """Count a start that failed on ``node``. ``only_node``: no other one could have taken the driver.

        Returns why the job is given up, "" while it is not. Numbers in ``reason`` tell no reasons apart: attempts,
        ports and process ids differ each time.
        """
        reason = _NUMBERS.sub("#", reason)
        if reason != self._reason:
            self._reason, self._count, self.nodes = reason, 0, frozenset()
        self._count += 1
        self.nodes |= {node}
        if not self._most or self._count < self._most or not (only_node or len(self.nodes) > 1):
            return ""
        where = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else "the only node that could take it"
        return f"{self._count} starts in a row failed so, on {where} ({options.DRIVER_START_ATTEMPTS.key})"

    def ended_otherwise(self) -> None:
        """An attempt came up, or failed for a reason that may pass."""
        self._reason, self._count, self.nodes = "", 0, frozenset()
