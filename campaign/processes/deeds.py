"""Judges by what the attempts of a job have done that never two of them were live at once, and that nothing was lost.

Two kinds of deeds are told apart, as in docs/high-availability.md. An *entry* is committed under the attempt's lease:
no attempt may ask for that once a newer one has begun. A *tick* is the script's own code, which nothing holds back: an
attempt that was stopped, or cut off, may go on with it until it is ended.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import msgspec


class Deed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a job's file ``deeds``; see ``job`` and ``gateways.job``. Times are by the history's clock.

    ``why``: the reason of a gateway's refusal.
    """

    attempt: int
    pid: int
    what: str
    at: float
    number: int = 0
    asked: float = 0.0
    whole: bool = True
    why: str = ""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A job at the end of a history. ``shown``: when a reply first showed that it has ended; None if none did.

    ``cancelled``: a client has asked to cancel it, as far as anybody knows. ``acknowledged``: when the first reply to
    that came; None if none did. ``ran``: when somebody last asked for it after that and was told that it runs.
    ``entries``: how many it was to commit.
    """

    job_id: str
    status: str
    shown: float | None
    cancelled: bool
    entries: int
    detail: str = ""
    acknowledged: float | None = None
    ran: float | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """``lease`` of the attempts in seconds, and ``freeze``: the longest stop that an attempt need not notice.

    ``cut``: times from and to which members could not reach each other. An attempt that is cut off looks for a newer
    one every eighth of its lease (docs/adr/0037).
    """

    lease: float
    freeze: float
    cut: tuple[tuple[float, float], ...] = ()

    def may_be_cut_off(self, at: float) -> bool:
        """True if an attempt need not know that a newer one began at this time: it was ordered some time before."""
        return any(begin <= at <= end + 2 * self.lease for begin, end in self.cut)


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks of an attempt after a newer one had begun, which are explained. ``seconds``: from there to the last one."""

    attempt: int
    seconds: float


def read_deeds(data: bytes) -> list[Deed]:
    """Return the deeds of one job, without a line that its writer did not finish."""
    lines = data.split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Deed) for line in lines]


def judge(deeds: Sequence[Deed], end: Ended, rules: Rules) -> tuple[list[str], list[Overlap]]:
    """Return the violations of one job, and the overlaps that are explained."""
    found, overlaps = _live_at_once(deeds, rules)
    found += _attempts(deeds)
    found += _work(deeds, end)
    found += _cancellation(deeds, end)
    return [f"job {end.job_id}: {each}" for each in found], overlaps


def _live_at_once(deeds: Sequence[Deed], rules: Rules) -> tuple[list[str], list[Overlap]]:
    begun = {deed.attempt: deed.at for deed in deeds if deed.what == "began"}
    by_attempt: dict[int, list[Deed]] = defaultdict(list)
    for deed in sorted(deeds, key=lambda each: each.at):
        by_attempt[deed.attempt].append(deed)
    found, overlaps = [], []
    for attempt, own in by_attempt.items():
        newer = min((at for other, at in begun.items() if other > attempt), default=None)
        if newer is None:
            continue
        late = [deed for deed in own if deed.at > newer]
        found += [
            f"attempt {attempt} committed entry {deed.number}, asked for at {deed.asked:.3f}, but a newer attempt had "
            f"begun at {newer:.3f}"
            for deed in late
            if deed.what == "commit" and deed.asked > newer
        ]
        ticks = [deed for deed in late if deed.what == "tick"]
        if not ticks:
            continue
        # The newer attempt was ordered while this one stood still, and took some time to start.
        began = max((at for at in _resumed(own, rules.freeze) if at > newer - 2 * rules.lease), default=None)
        if began is None and rules.may_be_cut_off(newer):
            began = newer
        if began is None:
            found.append(
                f"attempt {attempt} worked at {ticks[0].at:.3f}, but a newer attempt had begun at {newer:.3f}, and it "
                "had not been stopped"
            )
        elif ticks[-1].at - max(began, newer) > rules.lease:
            found.append(
                f"attempt {attempt} worked until {ticks[-1].at:.3f}, but a newer attempt had begun at {newer:.3f}, and "
                f"it has run again since {began:.3f}"
            )
        else:
            overlaps.append(Overlap(attempt=attempt, seconds=ticks[-1].at - newer))
    return found, overlaps


def _resumed(deeds: Sequence[Deed], freeze: float) -> list[float]:
    """Return when an attempt did something again after it had done nothing for too long."""
    return [after.at for before, after in pairwise(deeds) if after.at - before.at > freeze]


def _attempts(deeds: Sequence[Deed]) -> list[str]:
    processes: dict[int, set[int]] = defaultdict(set)
    for deed in deeds:
        processes[deed.attempt].add(deed.pid)
    return [
        f"attempt {attempt} was run by {len(pids)} processes" for attempt, pids in processes.items() if len(pids) > 1
    ]


def _work(deeds: Sequence[Deed], end: Ended) -> list[str]:
    found = []
    if end.status == "FINISHED":
        entries = sorted(deed.number for deed in deeds if deed.what == "commit")
        if end.entries and not any(deed.what == "ended" for deed in deeds):
            found.append("it is FINISHED, and no attempt has reached its end")
        if len(set(entries)) != len(entries):
            found.append("an entry was committed twice")
    elif end.status != "CANCELED" or not end.cancelled:
        found.append(f"it has ended as {end.status or 'nothing'}: {end.detail}")
    if any(not deed.whole for deed in deeds if deed.what == "file"):
        found.append("an attempt has found another file than the one that was submitted")
    if end.shown is not None:
        late = [deed for deed in deeds if deed.what == "began" and deed.at > end.shown]
        found += [f"attempt {deed.attempt} began at {deed.at:.3f}, after its end was shown" for deed in late]
    return found


def _cancellation(deeds: Sequence[Deed], end: Ended) -> list[str]:
    """Judge that an acknowledged cancellation was not lost: only a script that had ended by then may end the job."""
    if end.acknowledged is None:
        return []
    reached = min((deed.at for deed in deeds if deed.what == "ended"), default=math.inf)
    since = f"after its cancellation was acknowledged at {end.acknowledged:.3f}"
    found = []
    if end.status == "FINISHED" and reached > end.acknowledged:
        found.append(f"it is FINISHED, and its script has ended {since}")
    if end.ran is not None and reached > end.ran:
        found.append(f"it was shown as RUNNING at {end.ran:.3f}, {since}")
    return found
