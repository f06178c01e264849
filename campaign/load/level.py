"""The level ``load``: histories under load, each on a cluster of its own, until the time is over."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from campaign.kept import write_record
from campaign.load.figures import LoadFigures
from campaign.load.history import Load, load_cluster, play_load
from campaign.load.plan import draw_plan
from campaign.load.record import LoadRecord, judge_load, read_record
from campaign.processes.figures import LONGEST_VIOLATION, FailedHistory
from campaign.processes.level import keep_logs, why_not_played
from campaign.processes.plan import HistoryPlan
from emberkeep.base.errors import EmberkeepError

HISTORY_SECONDS = 90.0
FAILURES_AT_MOST = 5
_SHOWN = 20  # violations of a history that is judged again
Shown = Callable[[str], None]


async def run(
    figures: LoadFigures,
    seed: int,
    folder: Path,
    until: float,
    show: Shown,
    took: Callable[[], None],
    *,
    load: Load | None = None,
    seconds: float = HISTORY_SECONDS,
) -> None:
    """Continue with the next history until a time (of ``time.monotonic``), or ``FAILURES_AT_MOST`` have failed.

    ``folder``: for the records of those that fail. ``seconds``: how long a history has load.
    """
    load = load or Load()
    figures.clients, figures.blob_bytes = load.clients, load.blob_bytes
    while time.monotonic() < until and len(figures.failures) < FAILURES_AT_MOST:
        number = figures.histories
        place = Path(tempfile.mkdtemp(prefix="emberkeep-load-"))
        try:
            record = await _played(place, draw_plan(f"{seed}-{number}", seconds), load)
            if isinstance(record, str):
                logs = keep_logs(folder, number, place / "cluster")
                figures.not_judged(FailedHistory(number, record, str(logs)))
                show(f"history {number}: {record}\nlogs: {logs}")
                took()
                continue
            judgement = await asyncio.to_thread(judge_load, record)
            figures.took(record, judgement)
            if judgement.violations:
                kept = _keep(folder, number, record, place / "cluster")
                shown = judgement.violations[0][:LONGEST_VIOLATION]
                figures.failures.append(FailedHistory(number, shown, str(kept)))
                show(f"history {number}: {shown}\nkept as {kept}; look again: python -m campaign --replay {kept}")
        finally:
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        took()
        show(
            f"{figures.histories} histories under load, {sum(figures.statuses.values())} replies, "
            f"{sum(figures.faults.values())} leaders lost, {figures.uploaded / 1e9:.1f} GB uploaded, "
            f"{len(figures.failures)} failed"
        )


async def _played(place: Path, plan: HistoryPlan, load: Load) -> LoadRecord | str:
    """Return the record of a history, or why it could not be played to its end."""
    try:
        async with load_cluster(place / "cluster") as cluster:
            return await play_load(cluster, plan, load, place / "jobs")
    except (EmberkeepError, TimeoutError) as error:
        return why_not_played(error)


def _keep(folder: Path, number: int, record: LoadRecord, cluster: Path) -> Path:
    """Write the record, and beside it what the processes have logged."""
    kept = folder / f"history-{number}.json"
    write_record(kept, record)
    keep_logs(folder, number, cluster)
    return kept


def replay(path: Path, show: Shown, *, verbose: bool) -> int:
    """Judge a kept history again, and show its faults. Return 1 if it has violations."""
    record = read_record(path)
    began = min((reply.sent for reply in record.replies), default=0.0)
    if verbose:
        for strike in sorted(record.history.strikes, key=lambda each: each.at):
            show(f"{strike.at - began:7.3f}–{strike.until - began:.3f} {strike.kind}: {strike.target}")
    judgement = judge_load(record)
    for violation in judgement.violations[:_SHOWN]:
        show(f"violation: {violation}")
    return 1 if judgement.violations else 0
