"""What published campaigns have tried, level by level: rows of tables, and the commands that try it again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from campaign.load.replies import quantile
from campaign.load.report import accepted, by_kind
from campaign.processes.transfers.hits import ALL_TRANSFERS
from campaign.progress import Progress
from campaign.soak.drift import drifts

Row = tuple[str, str, str, str, str, str]

# What the lab has set itself to try.
_WORLDS = 200_000
_FAULTS_OF_STUBS = 10_000
_FAULTS_OF_SPARK = 1_000
_HOURS = 4


def commands(campaigns: Sequence[Progress]) -> Iterator[str]:
    """Return the command of each level, with as many minutes as it took."""
    for each in campaigns:
        hunted = sum(hunt.cpu_seconds for hunt in each.hunts.values())
        for level, seconds in (
            ("crashes", each.crashes.seconds),
            ("simulation", each.seconds),
            ("planted", hunted),
            ("processes", each.real.seconds),
            ("load", each.load.seconds),
            ("spark", each.spark.seconds),
            ("soak", each.soak.seconds),
        ):
            if seconds:
                yield f"make campaign LEVELS={level} SEED={each.seed} MINUTES={math.ceil(seconds / 60)}"


def tried(campaigns: Sequence[Progress]) -> Iterator[Row]:
    """Return rows of level, seed, what was tried, what was judged, how much of it failed, and versions of the code."""
    for each in campaigns:
        if each.crashes.components:
            yield _crashes(each)
        if each.figures.worlds:
            yield _simulation(each)
        if each.real.histories:
            yield _processes(each)
        if each.load.histories:
            yield _load(each)
        if each.spark.histories:
            yield _spark(each)
        if each.soak.rounds:
            yield _soak(each)


def failures(campaigns: Sequence[Progress]) -> Iterator[tuple[str, str, str]]:
    """Return the level, the seed with the number of the history, and the first violation of all that has failed."""
    for each in campaigns:
        for level, found in (
            ("simulation", [*each.failures, *each.mended]),
            ("processes", each.real.failures),
            ("load", each.load.failures),
            ("spark", each.spark.failures),
        ):
            for failure in found:
                yield level, f"{each.seed}/{failure.number}", failure.violation
        for violation in each.crashes.failures:
            yield "crashes", f"{each.seed}", violation
        for problem in each.soak.problems:
            yield "soak", f"{each.seed}", problem
        for drift in drifts(each.soak.samples):
            if drift.grows:
                change = f"{drift.first:,.1f} in the first quarter, {drift.last:,.1f} in the last"
                yield "soak", f"{each.seed}", f"{drift.value} of {drift.subject} grows: {change}"


def _crashes(progress: Progress) -> Row:
    figures = progress.crashes
    points = sum(sum(component.points.values()) for component in figures.components.values())
    pairs = figures.pairs.values()
    at_once, at_once_of = sum(pair.at_once for pair in pairs), sum(pair.at_once_of for pair in pairs)
    in_turn, in_turn_of = sum(pair.in_turn for pair in pairs), sum(pair.in_turn_of for pair in pairs)
    what = f"{points:,} crash points of {len(figures.components)} components"
    judged = f"{len(pairs)} pairs of components: {at_once:,} of {at_once_of:,} crashes at once, "
    judged += f"{in_turn:,} of {in_turn_of:,} one after the other"
    return "crashes", f"{progress.seed}", what, judged, f"{len(figures.failures):,}", _code(figures.revisions)


def _simulation(progress: Progress) -> Row:
    figures = progress.figures
    what = f"{figures.worlds:,} worlds of {_WORLDS:,}, {sum(figures.faults.values()):,} faults"
    hours = f"{figures.virtual_seconds / 3600:,.0f} virtual hours, {len(figures.triples):,} triples"
    failed = len(progress.failures) + len(progress.mended)
    return "simulation", f"{progress.seed}", what, hours, f"{failed:,}", _code(progress.revisions)


def _processes(progress: Progress) -> Row:
    figures = progress.real
    what = f"{figures.histories:,} histories, {sum(figures.faults.values()):,} faults of {_FAULTS_OF_STUBS:,}"
    if figures.on_transfers:
        what += f", {figures.on_transfers[ALL_TRANSFERS]:,} during BLOB transfers"
    judged = f"{sum(figures.operations.values()):,} operations, {figures.entries:,} entries"
    if figures.files:
        judged += f", {figures.files:,} files"
    if figures.late:
        judged += f", {figures.late:,} requests for attempts that were over"
    return "processes", f"{progress.seed}", what, judged, f"{len(figures.failures):,}", _code(figures.revisions)


def _load(progress: Progress) -> Row:
    figures = progress.load
    times = by_kind(figures)
    judged = ", ".join(
        f"p99 {quantile(times[name], 0.99) / 1000:.1f} s {when}"
        for name, when in (("all|outside", "outside of takeovers"), ("all|during", "during them"))
        if name in times
    )
    waited = accepted(figures)
    if waited:
        judged += f", a job accepted within {quantile(waited['all'], 0.99) / 1000:.1f} s (p99)"
    replies = f"{sum(figures.statuses.values()):,} replies"
    what = f"{figures.histories:,} histories, {sum(figures.faults.values()):,} faults, {replies}"
    return "load", f"{progress.seed}", what, judged, f"{len(figures.failures):,}", _code(figures.revisions)


def _spark(progress: Progress) -> Row:
    figures = progress.spark
    what = f"{figures.histories:,} histories, {sum(figures.faults.values()):,} faults of {_FAULTS_OF_SPARK:,}"
    judged = f"{sum(figures.outputs.values()):,} outputs of {sum(figures.rows.values()):,} rows"
    judged += f", {figures.differences:,} differ"
    return "spark", f"{progress.seed}", what, judged, f"{len(figures.failures):,}", _code(figures.revisions)


def _soak(progress: Progress) -> Row:
    figures = progress.soak
    found = drifts(figures.samples)
    what = f"{figures.rounds:,} rounds, {figures.seconds / 3600:.1f} hours of {_HOURS}"
    judged = f"{len(found)} values, {sum(each.grows for each in found)} grow"
    return "soak", f"{progress.seed}", what, judged, f"{len(figures.problems):,}", _code(figures.revisions)


def _code(revisions: Sequence[str]) -> str:
    """Say which versions were played: the newest one, and how many there were before it."""
    if len(revisions) <= 1:
        return "".join(revisions)
    return f"{revisions[-1]} and {len(revisions) - 1} before it"
