"""The section of a campaign's report about load beside faults."""

from __future__ import annotations

from typing import Any

import msgspec

from campaign.load.figures import LoadFigures
from campaign.load.replies import KINDS, OTHER, quantile
from campaign.tables import by_name, counts, durations, table

_WHEN = ("outside", "during")
_SHARES = {"p50": 0.5, "p99": 0.99, "largest": 1.0}


def data(figures: LoadFigures) -> dict[str, Any]:
    """Return the section for programs."""
    return {
        "figures": msgspec.to_builtins(figures),
        "milliseconds": {name: _times(taken) for name, taken in by_kind(figures).items()},
        "accepted": {when: _times(waited) for when, waited in accepted(figures).items()},
        "takeovers": durations(figures.takeovers),
    }


def by_kind(figures: LoadFigures) -> dict[str, dict[int, int]]:
    """Return how many replies took so many milliseconds, by kind and by whether a leader was lost; "all" has all."""
    found: dict[str, dict[int, int]] = {}
    for name, taken in figures.milliseconds.items():
        for key in (name, f"all|{name.partition('|')[2]}"):
            into = found.setdefault(key, {})
            for milliseconds, count in taken.items():
                into[int(milliseconds)] = into.get(int(milliseconds), 0) + count
    return found


def accepted(figures: LoadFigures) -> dict[str, dict[int, int]]:
    """Return how many jobs have waited so many milliseconds until they were accepted; "all" has those of both times."""
    found: dict[str, dict[int, int]] = {}
    for when, waited in figures.accepted.items():
        for key in ("all", when):
            into = found.setdefault(key, {})
            for milliseconds, count in waited.items():
                into[int(milliseconds)] = into.get(int(milliseconds), 0) + count
    return found


def _times(taken: dict[int, int]) -> dict[str, int]:
    return {"replies": sum(taken.values()), **{name: quantile(taken, share) for name, share in _SHARES.items()}}


def section(figures: LoadFigures, seed: int) -> list[str]:
    """Return the section for people."""
    minutes, replies = figures.seconds / 60, sum(figures.statuses.values())
    lines = [
        "## Load beside faults",
        "",
        *table(
            ("what", "figure"),
            [
                ("histories", f"{figures.histories:,} of seed {seed}"),
                ("failed", f"{len(figures.failures)}"),
                ("clients at full speed", f"{figures.clients}, a fuzzer, and large uploads beside them"),
                ("time under load", f"{minutes:.0f} min"),
                ("replies", f"{replies:,}, {replies / figures.seconds if figures.seconds else 0.0:.0f} a second"),
                ("leaders lost", f"{sum(figures.faults.values()):,}"),
                ("jobs that were accepted", f"{figures.jobs:,}"),
                ("objects whose histories were checked", f"{figures.objects:,}, {figures.undecided:,} undecided"),
                ("jobs that ran", ", ".join(f"{n:,} {status}" for status, n in by_name(figures.ends))),
                (
                    "large files",
                    f"{figures.uploaded / 1e9:.1f} GB of {figures.blob_bytes / 2**20:.0f} MiB each, "
                    f"{figures.removed / 1e9:.1f} GB deleted again",
                ),
                ("strange requests", f"{sum(figures.fuzzed.values()):,}"),
                ("code", ", ".join(figures.revisions)),
            ],
        ),
    ]
    if figures.failures:
        rows = [(str(each.number), each.violation.replace("|", "\\|"), each.kept) for each in figures.failures]
        lines += ["### Failed histories under load", "", *table(("history", "violation", "record"), rows)]
    lines += _replies(figures)
    lines += _accepted(figures)
    lines += [*table(("status", "replies"), counts(figures.statuses))]
    lines += [*table(("reply to a strange request", "count"), counts(figures.fuzzed))]
    return lines


def _replies(figures: LoadFigures) -> list[str]:
    found, rows = by_kind(figures), []
    for kind in ("all", *(name for name, _, _ in KINDS), OTHER):
        for when in _WHEN:
            if f"{kind}|{when}" in found:
                times = _times(found[f"{kind}|{when}"])
                rows.append((kind, when, f"{times.pop('replies'):,}", *(f"{each:,}" for each in times.values())))
    takeovers = durations(figures.takeovers)
    lasts = "no time that was measured"
    if "median" in takeovers:
        lasts = f"{takeovers['median']:.1f} s in the middle, {takeovers['largest']:.1f} s at most"
    return [
        "### Times of replies",
        "",
        "Milliseconds from a request until its reply, outside of takeovers and during them: from the loss of a leader",
        f"until a leader has answered a request that was sent afterwards. Takeovers took {lasts}. Refusals with 503,",
        "redirections and lost replies are not part of it: the client sends the request again.",
        "",
        *table(("request", "takeover", "replies", *_SHARES), rows),
    ]


def _accepted(figures: LoadFigures) -> list[str]:
    rows = []
    for when, waited in accepted(figures).items():
        times = _times(waited)
        rows.append((when, f"{times.pop('replies'):,}", *(f"{each:,}" for each in times.values())))
    return [
        "### Time until a job is accepted",
        "",
        "Milliseconds from a client's first request about a new job, which announces its files, until the reply that",
        "accepts the job. The client repeats what is refused, redirected or has no reply, as Emberkeep's own client",
        "does: all of that is part of the time.",
        "",
        *table(("takeover", "jobs", *_SHARES), rows),
    ]
