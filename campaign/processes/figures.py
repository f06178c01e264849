"""What the histories of a campaign with real processes have shown so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from campaign.processes.record import HistoryRecord, Judgement, counted, hits_of_transfers, recoveries

LONGEST_VIOLATION = 400  # characters, in the report; the record has all


class FailedHistory(msgspec.Struct, frozen=True):
    """A history with violations. ``kept``: the file with its record, relative to the checkout if it is in it."""

    number: int
    violation: str
    kept: str


class ProcessFigures(msgspec.Struct):
    """Counts of many histories. ``seconds``: real time under faults, then until all had recovered and was judged.

    ``operations``: by kind and outcome. ``recoveries``: by kind of fault, how often it took so many seconds.
    ``entries``: committed under a lease; ``stored``: acknowledged by state gateways.
    ``late``: answers of state gateways to requests for attempts that were over. ``files``: of jobs, that a driver or an
    executor has compared. ``on_transfers``: faults that have hit a running BLOB transfer, all and by where. Figures
    that were published earlier lack these three.
    ``overlaps``: attempts that were stopped, and ran their script's own code after a newer one had begun, until ended.
    """

    histories: int = 0
    seconds_of_faults: float = 0.0
    seconds: float = 0.0
    faults: dict[str, int] = {}
    operations: dict[str, int] = {}
    objects: int = 0
    undecided: int = 0
    ends: dict[str, int] = {}
    attempts: int = 0
    entries: int = 0
    stored: int = 0
    late: int = 0
    files: int = 0
    on_transfers: dict[str, int] = {}
    overlaps: int = 0
    longest_overlap: float = 0.0
    recoveries: dict[str, dict[str, int]] = {}
    failures: list[FailedHistory] = []
    revisions: list[str] = []

    def took(self, record: HistoryRecord, judgement: Judgement, seconds: float) -> None:
        """Add a history that was judged. ``seconds``: the real time that it took."""
        self.histories += 1
        self.seconds_of_faults += record.plan.seconds
        self.seconds += seconds
        add_counts(self.faults, counted(record))
        add_counts(self.operations, Counter(record.counts))
        add_counts(self.ends, Counter(end.status for end in record.ends))
        self.objects += judgement.objects
        self.undecided += judgement.undecided
        for deeds in record.deeds.values():
            self.attempts += len({deed.attempt for deed in deeds})
            self.entries += sum(deed.what == "commit" for deed in deeds)
            self.stored += sum(deed.what == "stored" for deed in deeds)
            self.files += sum(deed.what == "file" for deed in deeds)
        self.files += sum(len(seen) for seen in record.seen.values())
        self.late += sum(bool(write.answer) for writes in record.late.values() for write in writes)
        add_counts(self.on_transfers, hits_of_transfers(record))
        self.overlaps += len(judgement.overlaps)
        self.longest_overlap = max([self.longest_overlap, *(each.seconds for each in judgement.overlaps)])
        for kind, took in recoveries(record):
            add_counts(self.recoveries.setdefault(kind, {}), Counter({f"{took:.2f}": 1}))

    def not_judged(self, failed: FailedHistory, seconds: float) -> None:
        """Add a history that could not be played to its end."""
        self.histories += 1
        self.seconds += seconds
        self.failures.append(failed)


def add_counts(mine: dict[str, int], others: Mapping[str, int]) -> None:
    """Add the counts of others to those in place."""
    mine.update(Counter(mine) + Counter(others))
