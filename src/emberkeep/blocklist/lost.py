"""If the blocklist's record cannot be read, replace it with the newest copy that a JobMaster holds. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import Blocklist, check_entry
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import LIST_BYTES

_LAST_REVISION: Final = 2**53  # no list has been changed so often, and later revisions still fit into a record


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


def why_no_copy(epoch: int, blocklist: Blocklist, own_epoch: int) -> str:
    """Return why ``blocklist`` cannot be what the leader of ``epoch`` sent; "" if it can.

    A driver runs the job's own code. ``own_epoch``: of the leader that cannot read the list, and has sent none.
    """
    if not 0 < epoch < own_epoch:
        return f"the leader of epoch {epoch} cannot have sent it before epoch {own_epoch}"
    revisions = (0, blocklist.floor, *(each.revision for each in blocklist.removals), blocklist.revision)
    if min(revisions) < 0 or max(revisions) > min(blocklist.revision, _LAST_REVISION):
        return f"its revisions, up to {max(revisions)}, are not those of a list"
    places = {each.place for each in blocklist.entries}
    if len(places) < len(blocklist.entries) or len(msgspec.json.encode(blocklist)) > 2 * LIST_BYTES:
        return "it has more entries than a list"
    try:
        for entry in blocklist.entries:
            check_entry(entry)
    except InvalidInput as error:
        return str(error)
    return ""


class UnknownPlaces(BlockedPlaces):
    """Used while the blocklist is unknown: nothing new is placed anywhere, and running processes stay."""

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        del task_manager, node_id
        return True
