"""What to go by when the record of the list cannot be read: what JobMasters were told of it last. Pure."""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import Blocklist
from emberkeep.blocklist.places import BlockedPlaces


class LostBlocklist:
    """``why``: what is wrong with the record. ``patience``: seconds after the first JobMaster's word until the newest
    list that was heard of counts: the others have spoken by then, or are silent."""

    def __init__(self, why: str, patience: float) -> None:
        self.why = why
        self._patience = patience
        self._newest: tuple[int, Blocklist] | None = None
        self._since = 0.0

    def hear(self, epoch: int, blocklist: Blocklist, now: float) -> None:
        """A JobMaster was told this list by the leader of ``epoch``."""
        if self._newest is None:
            self._since = now
        elif (epoch, blocklist.revision) <= (self._newest[0], self._newest[1].revision):
            return
        self._newest = (epoch, blocklist)

    def found(self, now: float) -> Blocklist | None:
        """The list that counts; None: not yet."""
        if self._newest is None or now < self._since + self._patience:
            return None
        return self._newest[1]


class UnknownPlaces(BlockedPlaces):
    """While nobody knows what is blocked: nothing new goes anywhere, and what runs stays."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        del task_manager, node_id
        return True
