"""How fast savepoints of prepared checkpoints are made, beside ``cp -r``, ``sha256sum`` and ``sync`` of the same."""

from __future__ import annotations

from bench.commands import JOBS, SPARK_SUBMIT, run, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say

_TIMEOUT_SECONDS = 1_200
_MB = 10**6
_SMALL_FILES = Goal(at_least=1.0)


def measure(plan: Plan) -> list[Figure]:
    """Savepoints of prepared checkpoints: 500 MB in 40 files, and 10 MB in 5,000 files."""
    large, small = (plan.size(40, 4), 1, 12_500_000), (plan.size(200, 20), 25, 2_000)
    return [*_copies(plan, *large), *_copies(plan, *small)]


def _copies(plan: Plan, partitions: int, files: int, size: int) -> list[Figure]:
    amount, count = partitions * files * size / _MB, partitions * files
    name = f"{amount:,.0f} MB in {count:,} files"
    say(f"savepoints: {plan.repetitions} of {name}")
    with temporary_directory() as directory:
        command = [SPARK_SUBMIT, "--master", "local[1]", "--driver-memory", "512m", str(JOBS / "saving.py")]
        shape = [str(partitions), str(files), str(size), str(plan.repetitions)]
        done = run([*command, str(directory), *shape], directory, {}, _TIMEOUT_SECONDS)
    ours, by_hand = done.numbers("SAVEPOINT"), done.numbers("BY-HAND")
    many = count > amount
    unit, total = ("files/s", float(count)) if many else ("MB/s", amount)
    return [
        Figure(f"savepoint, {name}", unit, tuple(total / seconds for seconds in ours)),
        Figure(f"cp, sha256sum, sync, {name}", unit, tuple(total / seconds for seconds in by_hand)),
        Figure(f"{name}: speed, savepoint / by hand", "×", ratios(by_hand, ours), _SMALL_FILES if many else None),
    ]
