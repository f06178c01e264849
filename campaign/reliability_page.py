"""The page about what campaigns have shown, made of published figures. No figure in it is typed by hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from campaign.processes.transfers.hits import ALL_TRANSFERS
from campaign.progress import Progress
from campaign.tables import durations, table
from campaign.tried import commands, failures, tried

_TIMES = ("median", "p90", "largest")


class BenchFigure(msgspec.Struct, frozen=True):
    """A figure of `bench`, with a sample for each repetition."""

    name: str
    unit: str
    samples: tuple[float, ...]
    goal: str | None
    median: float
    min: float
    max: float
    met: bool | None


class BenchSection(msgspec.Struct, frozen=True):
    """A section of `bench`. ``load_average``: of the machine before and after it."""

    name: str
    seconds: float
    load_average: tuple[float, float]
    figures: tuple[BenchFigure, ...]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """A file that `bench` has written."""

    format: str
    version: int
    repetitions: int
    machine: dict[str, object]
    sections: Sequence[BenchSection]


class Finding(msgspec.Struct, frozen=True):
    """A bug that a level has found.

    ``effect``: what users would have seen. ``test``: what shows it mended. ``histories``: published ones that failed
    because of it, as ``<seed>/<number>``.
    """

    level: str
    effect: str
    test: str
    histories: tuple[str, ...] = ()


class Findings(msgspec.Struct, frozen=True):
    """All that the lab has found."""

    version: int
    findings: tuple[Finding, ...]


def page(
    campaigns: Sequence[Progress], benches: Sequence[Bench], findings: Sequence[Finding], promises: tuple[int, int]
) -> str:
    """Return the Markdown. ``promises``: how many the guarantees have, and how many tests show them."""
    lines = [
        "# Reliability report",
        "",
        "<!-- Written by `python -m tools.check_docs --write` from docs/figures. Do not edit. -->",
        "",
        "This page is for those who decide whether to trust Emberkeep. It reports what the [reliability"
        " lab](reliability-lab.md) has tried, how often, what it has found, and how long recoveries took. Each figure"
        " is from a file in [`figures`](figures), and can be made again:",
        "",
        "```console",
        *(f"$ {command}" for command in (*commands(campaigns), *_bench_commands(benches))),
        "```",
        "",
        "The same seed plans the same faults. Simulated worlds repeat exactly; real processes do not.",
        "",
        "## What is promised",
        "",
        f"The [guarantees](guarantees.md) list {promises[0]} promises, shown by {promises[1]} tests. The lab looks for"
        " histories in which one of them does not hold.",
        "",
        "## What was tried",
        "",
        *table(("level", "seed", "tried", "judged", "failed", "code"), tried(campaigns)),
        "*n of m*: there are m of them, or the lab has set itself m. A failed history broke a rule when it was played."
        " The code is the commit that was played; what has changed since then, `git log` shows.",
        "",
        *_faults(campaigns),
        *_failed(campaigns, findings),
        "## What was found",
        "",
        *table(
            ("level", "what users would have seen", "shown to be mended by"),
            [(each.level, each.effect, f"`{each.test}`") for each in findings],
        ),
        *_planted(campaigns),
        "## How long recoveries took",
        "",
        *_recoveries(campaigns),
        *_compared(benches),
        "## Read next",
        "",
        "- [The reliability lab](reliability-lab.md): how histories are drawn, played and judged",
        "- [Guarantees](guarantees.md)",
        "- [Performance](performance.md)",
    ]
    return "\n".join(lines) + "\n"


def _bench_commands(benches: Sequence[Bench]) -> Iterator[str]:
    for bench in benches:
        names = ",".join(section.name for section in bench.sections)
        yield f"python -m bench --only {names} --repetitions {bench.repetitions}"


def _faults(campaigns: Sequence[Progress]) -> list[str]:
    """Faults of real processes, with and without Spark."""
    found: dict[str, list[Counter[str]]] = {}
    for each in campaigns:
        for column, faults in enumerate((each.real.faults, each.spark.faults)):
            for kind, count in faults.items():
                found.setdefault(kind, [Counter(), Counter()])[column][kind] += count
    rows = [(kind, *(f"{column[kind]:,}" if column else "" for column in found[kind])) for kind in sorted(found)]
    lines = table(("fault", "with stub drivers", "with PySpark"), rows) if rows else []
    return [*lines, *_on_transfers(campaigns)]


def _on_transfers(campaigns: Sequence[Progress]) -> list[str]:
    """Where the faults with stub drivers have hit BLOB transfers."""
    found: Counter[str] = Counter()
    for each in campaigns:
        found.update(each.real.on_transfers)
    if not found:
        return []
    return [
        f"Of the faults with stub drivers, {found.pop(ALL_TRANSFERS):,} have hit a BLOB on its way to a task manager."
        " One fault may have hit several:",
        "",
        *table(("where", "faults"), [(where, f"{count:,}") for where, count in sorted(found.items())]),
    ]


def _failed(campaigns: Sequence[Progress], findings: Sequence[Finding]) -> list[str]:
    """Histories that have failed, each with its first violation, and the test of the bug that was behind it."""
    mended = {(each.level, history): each.test for each in findings for history in each.histories}
    rows = [
        (level, history, _cell(what), f"`{mended[level, history]}`" if (level, history) in mended else "**open**")
        for level, history, what in failures(campaigns)
    ]
    head = ("level", "seed and history", "first violation", "shown to be mended by")
    return ["### Histories that failed", "", *table(head, rows)] if rows else []


def _cell(text: str) -> str:
    text = re.sub(r" at /\S+", "", text)  # where the code was, on the machine that played it
    return text.replace("|", "\\|").replace("\n", " ")


def _planted(campaigns: Sequence[Progress]) -> list[str]:
    hunts = {name: hunt for each in campaigns for name, hunt in each.hunts.items()}
    if not hunts:
        return []
    missed = sorted(name for name, hunt in hunts.items() if hunt.found is None)
    by = Counter(hunt.unit for hunt in hunts.values() if hunt.found is not None)
    found = ", ".join(f"{count} by {unit}" for unit, count in sorted(by.items()))
    lines = [
        "### Planted bugs",
        "",
        f"{len(hunts) - len(missed)} of {len(hunts)} planted bugs were found within their budgets: {found}."
        + (f" Not found: {', '.join(f'`{name}`' for name in missed)}." if missed else ""),
        "",
    ]
    domains: dict[str, Counter[str]] = {}
    for hunt in hunts.values():
        counts = domains.setdefault(hunt.domain, Counter())
        counts["planted"] += 1
        counts[hunt.unit] += hunt.found is not None
    heads = {"planted": "planted", **{unit: f"found by {unit}" for unit in ("worlds", "tests", "histories")}}
    rows = [(f"`{name}`", *(f"{counts[each] or ''}" for each in heads)) for name, counts in sorted(domains.items())]
    return lines + table(("domain", *heads.values()), rows)


def _recoveries(campaigns: Sequence[Progress]) -> list[str]:
    streams = _merged([each.spark.streams for each in campaigns])
    answers = _merged([each.spark.answers for each in campaigns])
    stubs = _merged([each.real.recoveries for each in campaigns])
    worlds = _merged([each.figures.outages for each in campaigns])
    lines = []
    if streams:
        lines += [
            "### With PySpark",
            "",
            "Seconds from a fault, which may last itself, until each query of all jobs had committed a micro-batch that"
            " was planned after the fault, or run by a new driver; and until the leader answered, with all task"
            " managers. A cluster and its faults share the cores of one machine, often with other work, and some"
            " clusters have no standby processes: a start is cold there.",
            "",
            *table(
                ("fault", "n", *(f"streams: {name}" for name in _TIMES), *(f"cluster: {name}" for name in _TIMES)),
                [
                    (kind, _measured(streams.get(kind, {})), *_row(streams, kind), *_row(answers, kind))
                    for kind in sorted({*streams, *answers})
                ],
            ),
        ]
    if stubs:
        lines += [
            "### With stub drivers",
            "",
            "Seconds from a fault until the next reply of a leader, or the job's next deed, while other faults go on.",
            "",
            *table(("fault", "n", *_TIMES), [(kind, _measured(stubs[kind]), *_row(stubs, kind)) for kind in stubs]),
        ]
    if worlds:
        lines += [
            "### Simulated",
            "",
            "Virtual seconds until all streams that had worked work again, with half of the default timeouts. 0.0: no"
            " stream stood still.",
            "",
            *table(("fault", "n", *_TIMES), [(kind, _measured(worlds[kind]), *_row(worlds, kind)) for kind in worlds]),
        ]
    return lines


def _merged(many: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for one in many:
        for kind, seconds in one.items():
            found.setdefault(kind, Counter()).update(seconds)
    return {kind: dict(found[kind]) for kind in sorted(found)}


def _measured(seconds: Mapping[str, int]) -> str:
    return f"{durations(seconds)['measured']:,.0f}"


def _row(seconds: Mapping[str, Mapping[str, int]], kind: str) -> list[str]:
    found = durations(seconds.get(kind, {}))
    return [f"{found[name]:.1f}" if name in found else "–" for name in _TIMES]


def _compared(benches: Sequence[Bench]) -> list[str]:
    rows = [
        (
            figure.name,
            f"{len(figure.samples)}",
            *(f"{value:.2f}" for value in (figure.median, figure.min, figure.max)),
            " … ".join(f"{load:.1f}" for load in section.load_average),
        )
        for bench in benches
        for section in bench.sections
        for figure in section.figures
        if figure.unit == "s" and "worst" not in figure.name
    ]
    if not rows:
        return []
    return [
        "### Beside Flink and spark-submit",
        "",
        "The same kinds of faults, one at a time. Flink 2.3 has its defaults, with a checkpoint each second, a spare"
        " task manager and a standby JobManager. Its results count once the next checkpoint is complete. Flink"
        " publishes no times of recovery. Its documentation has the timeouts behind them: `heartbeat.timeout`, 50 s,"
        " and `high-availability.zookeeper.client.session-timeout`, 60 s. The load average is that of the machine,"
        " before each section and after it.",
        "",
        *table(("seconds", "n", "median", "least", "largest", "load average"), rows),
    ]
