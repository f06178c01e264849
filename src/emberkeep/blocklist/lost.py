"""Replace a list whose record cannot be read by the newest one that JobMasters last received. Pure."""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import Blocklist
from emberkeep.blocklist.places import BlockedPlaces


class LostBlocklist:
    """Collects the lists that JobMasters know.

    ``why``: what is wrong with the record. ``patience``: seconds after the first JobMaster's report until the newest
    reported list counts. By then the other JobMasters have reported, or are silent.
    """

    def __init__(self, why: str, patience: float) -> None:
        self.why = why
        self._patience = patience
        self._newest: tuple[int, Blocklist] | None = None
        self._since = 0.0

    def hear(self, epoch: int, blocklist: Blocklist, now: float) -> None:
        """Take a list that a JobMaster received from the leader of ``epoch``."""
        if self._newest is None:
            self._since = now
        elif (epoch, blocklist.revision) <= (self._newest[0], self._newest[1].revision):
            return
        self._newest = (epoch, blocklist)

    def found(self, now: float) -> Blocklist | None:
        """Return the list that counts; None while more reports are awaited."""
        if self._newest is None or now < self._since + self._patience:
            return None
        return self._newest[1]


class UnknownPlaces(BlockedPlaces):
    """Used while the list is unknown: nothing new is placed anywhere, and running processes stay."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        del task_manager, node_id
        return True
