"""What the histories of a campaign under load have shown so far."""

from __future__ import annotations

from collections import Counter

import msgspec

from campaign.load.record import LoadJudgement, LoadRecord
from campaign.processes.figures import FailedHistory, add_counts
from campaign.processes.record import counted


class LoadFigures(msgspec.Struct):
    """Counts of many histories. ``seconds``: under load.

    ``milliseconds``: how many replies took so long, by "<kind of request>|during" and "|outside" of takeovers.
    ``accepted``: how many jobs have waited so many milliseconds until they were accepted, "during" and "outside".
    ``fuzzed`` and ``statuses``: replies by status. ``takeovers``: how often one took so many seconds.
    """

    histories: int = 0
    seconds: float = 0.0
    clients: int = 0
    blob_bytes: int = 0
    faults: dict[str, int] = {}
    operations: dict[str, int] = {}
    statuses: dict[str, int] = {}
    fuzzed: dict[str, int] = {}
    milliseconds: dict[str, dict[str, int]] = {}
    accepted: dict[str, dict[str, int]] = {}
    takeovers: dict[str, int] = {}
    uploaded: int = 0
    removed: int = 0
    objects: int = 0
    undecided: int = 0
    jobs: int = 0
    ends: dict[str, int] = {}
    failures: list[FailedHistory] = []
    revisions: list[str] = []

    def took(self, record: LoadRecord, judgement: LoadJudgement) -> None:
        """Add a history that was judged."""
        history = record.history
        self.histories += 1
        self.seconds += history.plan.seconds
        add_counts(self.faults, counted(history))
        add_counts(self.operations, history.counts)
        add_counts(self.statuses, Counter(str(reply.status) for reply in record.replies))
        add_counts(self.fuzzed, record.fuzzed)
        for name, counts in judgement.milliseconds.items():
            add_counts(self.milliseconds.setdefault(name, {}), {str(took): count for took, count in counts.items()})
        for when, counts in judgement.accepted.items():
            add_counts(self.accepted.setdefault(when, {}), {str(took): count for took, count in counts.items()})
        add_counts(self.takeovers, Counter(f"{seconds:.1f}" for seconds in judgement.takeovers))
        self.uploaded += record.uploaded
        self.removed += record.removed
        self.objects += judgement.objects
        self.undecided += judgement.undecided
        self.jobs += len({each.key for each in history.jobs if each.kind == "submit" and each.returned is not None})
        add_counts(self.ends, Counter(end.status for end in history.ends))

    def not_judged(self, failed: FailedHistory) -> None:
        """Add a history that could not be played to its end."""
        self.histories += 1
        self.failures.append(failed)
