"""A JobMaster's side of the blocklist: the newest list that it received, and its own reports."""

from __future__ import annotations

from emberkeep.blocklist.ends import Ends
from emberkeep.blocklist.errors import BlocklistFull
from emberkeep.blocklist.merge import covers, merged
from emberkeep.blocklist.model import Blocked, Blocklist, Place, Report
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import is_overtaken

REPORTS_KEPT = 100  # reports that the ResourceManager has not answered yet
UNKNOWN = -1  # revision before the first list was received


class BlocklistFollower:
    """Combines the received list with the JobMaster's own reports, which take effect here at once.

    A report is repeated until the ResourceManager's list answers it, with an entry that covers it or with a removal.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._ends = Ends()
        self._over: set[tuple[Place, int]] = set()  # the entries whose time was over at the last ``lapse``
        self._listed = Blocklist(revision=UNKNOWN)
        self._reports: dict[Place, Report] = {}

    @property
    def revision(self) -> int:
        """Revision of the newest list; UNKNOWN before the first."""
        return self._listed.revision

    @property
    def told(self) -> tuple[int, Blocklist] | None:
        """The newest list and the epoch of the leader that sent the list; None before the first list."""
        return None if self.revision == UNKNOWN else (self._epoch, self._listed)

    @property
    def reports(self) -> tuple[Report, ...]:
        """Reports to send to the ResourceManager."""
        return tuple(self._reports.values())

    @property
    def places(self) -> BlockedPlaces:
        """Places where this job starts nothing.

        Entries whose time was over at the last ``lapse`` are left out.
        """
        return BlockedPlaces(entry for entry in self._entries() if (entry.place, entry.end_ms) not in self._over)

    def lapse(self, now_ms: int, now: float) -> bool:
        """Set the current time (Unix milliseconds by this host's clock, and monotonic seconds).

        Return True if that changes which entries have timed out.
        So a block ends on time even while no leader removes its entry.
        """
        before = self._over
        self._over = {(entry.place, entry.end_ms) for entry in self._ends.over(self._entries(), now_ms, now)}
        return self._over != before

    def _entries(self) -> tuple[Blocked, ...]:
        return (*self._listed.entries, *(report.entry for report in self._reports.values()))

    def take(self, epoch: int, blocklist: Blocklist) -> bool:
        """Take a list from the leader of ``epoch``. Return True if that list is newer than the known one."""
        if (epoch, blocklist.revision) <= (self._epoch, self._listed.revision):
            return False
        self._epoch, self._listed = epoch, blocklist
        entries = {entry.place: entry for entry in blocklist.entries}
        removals = {removal.place: removal.revision for removal in blocklist.removals}
        for place, report in list(self._reports.items()):
            known = entries.get(place)
            answered = known is not None and covers(known, report.entry)
            if answered or is_overtaken(report, removals.get(place, 0), blocklist.floor):
                del self._reports[place]
        return True

    def report(self, entry: Blocked) -> bool:
        """Ask the ResourceManager for this entry.

        Return True if the list and the pending reports do not cover it already. Raises BlocklistFull.
        """
        for known in self._listed.entries:
            if known.place == entry.place and covers(known, entry):
                return False
        waiting = self._reports.get(entry.place)
        if waiting is not None:
            if covers(waiting.entry, entry):
                return False
            entry = merged(waiting.entry, entry)
        elif len(self._reports) >= REPORTS_KEPT:
            raise BlocklistFull(f"{REPORTS_KEPT} reported entries wait for the ResourceManager already")
        self._reports[entry.place] = Report(entry=entry, known=max(0, self._listed.revision))
        return True
