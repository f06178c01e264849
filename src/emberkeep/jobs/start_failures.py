"""Counts attempts whose driver could not be started, so that a job that cannot start fails.

A driver that cannot come up reports that before its script runs: an import fails, Java or the interpreter is missing,
an archive cannot be unpacked. A restart strategy without a limit would restart it forever. So consecutive attempts that
failed for the same reason are counted, independently of the strategy. The reason may be specific to one node. So the
next attempt starts on another node if there is one, and the job fails only once the reason has occurred on two nodes,
or if no other node could take the driver at all. Like the restart strategy's count, this count is lost with the
JobManager process.
"""

from __future__ import annotations

import re

from emberkeep.base.configuration.options.jobs import DRIVER_START_ATTEMPTS

_NUMBERS = re.compile(r"\d+")


class StartFailures:
    """Counts failed starts of one job.

    ``most``: failed starts in a row for one reason after which the job fails; 0 for no limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._reason = ""
        self._count = 0
        self.nodes: frozenset[str] = frozenset()  # where the newest reason occurred

    def failed(self, reason: str, node: str, *, only_node: bool) -> str:
        """Count a start that failed on ``node``. ``only_node``: no other node could have taken the driver.

        Returns why the job fails, or "" if another attempt may follow. Reasons that differ only in numbers count as
        one, because attempts, ports and process ids differ each time.
        """
        reason = _NUMBERS.sub("#", reason)
        if reason != self._reason:
            self._reason, self._count, self.nodes = reason, 0, frozenset()
        self._count += 1
        self.nodes |= {node}
        if not self._most or self._count < self._most or not (only_node or len(self.nodes) > 1):
            return ""
        where = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else "the only node with room for it"
        return f"{self._count} starts in a row failed for this reason, on {where} ({DRIVER_START_ATTEMPTS.key})"

    def ended_otherwise(self) -> None:
        """Reset the count, because an attempt has started, or has failed for a reason that may pass."""
        self._reason, self._count, self.nodes = "", 0, frozenset()
