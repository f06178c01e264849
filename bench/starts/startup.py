"""From the command to the first Spark task, and to the end, for a job that is nothing but start-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.commands import EMBERKEEP, JOBS, SPARK_SUBMIT, Run, run, temporary_directory
from bench.measure import Figure, ratios
from bench.plan import Plan, say

_SCRIPT = str(JOBS / "tiny.py")
_RUN = (EMBERKEEP, "run", "--quiet", "--num-executors", "2", _SCRIPT)
_PEERS = ("local-cluster[2,1,1024]", "local[2]")
_CACHE = "XDG_CACHE_HOME"  # where the class-data archive lies


@dataclass(frozen=True)
class _Command:
    name: str
    argv: Sequence[str]
    environ: dict[str, str]


def measure(plan: Plan) -> list[Figure]:
    """`emberkeep run`, which starts a whole cluster, beside `spark-submit` on local-cluster (two executor JVMs as well)
    and on local[2] (one JVM in all). One turn before those that count warms the page cache."""
    with temporary_directory() as directory:
        state = {"XDG_STATE_HOME": str(directory / "state")}
        commands = [_Command("emberkeep run", _RUN, {**state, _CACHE: str(directory / "empty")})]
        if not plan.quick:
            prepared = {**state, _CACHE: str(directory / "prepared")}
            say("start-up: emberkeep prepare")
            run([EMBERKEEP, "prepare"], directory, prepared)
            commands.append(_Command("emberkeep run, prepared", _RUN, prepared))
        ours = [command.name for command in commands]
        commands += [_Command(peer, (SPARK_SUBMIT, "--master", peer, _SCRIPT), {}) for peer in _PEERS]
        runs: dict[str, list[Run]] = {command.name: [] for command in commands}
        for turn in range(plan.repetitions + 1):
            say(f"start-up: {f'{turn} of {plan.repetitions}' if turn else 'warming up'}")
            for command in commands if turn % 2 == 0 else reversed(commands):  # nobody is always the first
                done = run(command.argv, directory, command.environ)
                if turn > 0:
                    runs[command.name].append(done)
    first = {name: tuple(r.numbers("FIRST_TASK")[0] - r.started for r in of) for name, of in runs.items()}
    total = {name: tuple(r.seconds for r in of) for name, of in runs.items()}
    return _figures("first task", first, ours) + _figures("whole command", total, ours)


def _figures(what: str, seconds: dict[str, tuple[float, ...]], ours: list[str]) -> list[Figure]:
    figures = [Figure(f"{what}: {name}", "s", samples) for name, samples in seconds.items()]
    for name in ours:
        figures += [Figure(f"{what}: {name} / {peer}", "×", ratios(seconds[name], seconds[peer])) for peer in _PEERS]
    return figures
