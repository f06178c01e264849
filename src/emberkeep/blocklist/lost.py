"""If the blocklist's record cannot be read, replace it with the newest copy that a JobMaster holds. Pure."""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import Blocklist
from emberkeep.blocklist.places import BlockedPlaces


class LostBlocklist:
    """Collects the copies of the blocklist that JobMasters hold, to replace a record that cannot be read.

    ``why``: what is wrong with the record. ``patience``: seconds to wait after the first JobMaster's report, before the
    newest reported copy is adopted. In this time the other JobMasters report as well, if they can.
    """

    def __init__(self, why: str, patience: float) -> None:
        self.why = why
        self._patience = patience
        self._newest: tuple[int, Blocklist] | None = None
        self._since = 0.0

    def hear(self, epoch: int, blocklist: Blocklist, now: float) -> None:
        """Take the copy of a JobMaster, which received it from the leader of ``epoch``. ``now``: monotonic seconds."""
        if self._newest is None:
            self._since = now
        elif (epoch, blocklist.revision) <= (self._newest[0], self._newest[1].revision):
            return
        self._newest = (epoch, blocklist)

    def found(self, now: float) -> Blocklist | None:
        """Return the newest reported copy, or None while other JobMasters may still report theirs."""
        if self._newest is None or now < self._since + self._patience:
            return None
        return self._newest[1]


class UnknownPlaces(BlockedPlaces):
    """Used while the blocklist is unknown: nothing new is placed anywhere, and running processes stay."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        del task_manager, node_id
        return True
