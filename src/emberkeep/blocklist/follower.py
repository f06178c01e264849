"""A JobMaster's side of the list: the newest one that it was told, and what it reports itself."""

from __future__ import annotations

from emberkeep.blocklist.errors import BlocklistFull
from emberkeep.blocklist.merge import covers, merged
from emberkeep.blocklist.model import Blocked, Blocklist, Place, Report
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import is_overtaken

REPORTS_KEPT = 100  # that the ResourceManager has not answered yet
UNKNOWN = -1  # revision, before any list was told


class BlocklistFollower:
    """Its own reports count here at once; the ResourceManager's list answers each of them: with an entry that covers
    it, or with a removal. Until then a report is repeated."""

    def __init__(self) -> None:
        self._epoch = 0
        self._now_ms = 0
        self._listed = Blocklist(revision=UNKNOWN)
        self._reports: dict[Place, Report] = {}

    @property
    def revision(self) -> int:
        """Of the newest list; UNKNOWN before the first."""
        return self._listed.revision

    @property
    def told(self) -> tuple[int, Blocklist] | None:
        """The newest list, and the epoch of the leader that told it; None before the first."""
        return None if self.revision == UNKNOWN else (self._epoch, self._listed)

    @property
    def reports(self) -> tuple[Report, ...]:
        """What the ResourceManager has to be told."""
        return tuple(self._reports.values())

    @property
    def places(self) -> BlockedPlaces:
        """Where this job puts nothing. Entries whose time is over do not count, as far as ``lapse`` has been told."""
        return BlockedPlaces(entry for entry in self._entries() if not self._is_over(entry))

    def _is_over(self, entry: Blocked) -> bool:
        return entry.end_ms <= self._now_ms

    def lapse(self, now_ms: int) -> bool:
        """Take note of the time (ms since 1970, by this host's clock); returns whether that changes what counts.

        So a block ends at its end, also while no leader removes its entry.
        """
        before, self._now_ms = self._over(), now_ms
        return self._over() != before

    def _over(self) -> set[Place]:
        return {entry.place for entry in self._entries() if self._is_over(entry)}

    def _entries(self) -> tuple[Blocked, ...]:
        return (*self._listed.entries, *(report.entry for report in self._reports.values()))

    def take(self, epoch: int, blocklist: Blocklist) -> bool:
        """A list from the leader of ``epoch``; returns whether it is newer than what is known."""
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
        """Want this entry; returns whether it is news. Raises BlocklistFull."""
        for known in self._listed.entries:
            if known.place == entry.place and covers(known, entry):
                return False
        waiting = self._reports.get(entry.place)
        if waiting is not None:
            if covers(waiting.entry, entry):
                return False
            entry = merged(waiting.entry, entry)
        elif len(self._reports) >= REPORTS_KEPT:
            raise BlocklistFull(f"{REPORTS_KEPT} entries wait to be reported to the ResourceManager already")
        self._reports[entry.place] = Report(entry=entry, known=max(0, self._listed.revision))
        return True
