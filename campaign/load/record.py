"""The record of one history under load, as a file, and its judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from campaign.kept import read_kept
from campaign.load.replies import Wait, documented, latencies, undocumented, until_accepted, windows
from campaign.processes.calls import Answered
from campaign.processes.record import HistoryRecord, judge_record

VERSION = 1


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of one history. ``paths``: those of the cluster's own OpenAPI document.

    ``fuzzed``: replies to strange requests, by status. ``uploaded`` and ``removed``: bytes of large files.
    ``waits``: of new jobs, until they were accepted.
    """

    version: int = VERSION
    history: HistoryRecord
    replies: tuple[Answered, ...]
    paths: dict[str, dict[str, Any]]
    fuzzed: dict[str, int]
    uploaded: int
    removed: int
    waits: tuple[Wait, ...] = ()


class LoadJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """``milliseconds``: how many replies took so long, by "<kind>|during" and "<kind>|outside" of takeovers.

    ``accepted``: how many jobs have waited so long until they were accepted, "during" and "outside" of takeovers.
    ``takeovers``: their seconds.
    """

    violations: tuple[str, ...]
    objects: int
    undecided: int
    milliseconds: dict[str, dict[int, int]]
    accepted: dict[str, dict[int, int]]
    takeovers: tuple[float, ...]


def judge_load(record: LoadRecord) -> LoadJudgement:
    """Return what is wrong with a history, and how long replies took."""
    judgement = judge_record(record.history)
    takeovers = windows(record.history.strikes, record.replies)
    return LoadJudgement(
        violations=(*judgement.violations, *undocumented(record.replies, documented(record.paths))),
        objects=judgement.objects,
        undecided=judgement.undecided,
        milliseconds={name: dict(counts) for name, counts in latencies(record.replies, takeovers).items()},
        accepted={when: dict(counts) for when, counts in until_accepted(record.waits, takeovers).items()},
        takeovers=tuple(each.end - each.begin for each in takeovers),
    )


def read_record(path: Path) -> LoadRecord:
    """Read a kept history. Raises ValueError that names the file if it is damaged or of another version."""
    return read_kept(path, LoadRecord, VERSION)
