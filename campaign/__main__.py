"""``python -m campaign``: play random histories and write a report. ``make campaign`` runs it.

python -m campaign --minutes 10 --seed 1 --levels crashes,simulation,planted,processes,load,spark,soak
python -m campaign --replay tests/regression/worlds/d-0123abcd.json
python -m campaign --replay .campaign/1/processes/history-12.json
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from campaign import planted, report, simulation
from campaign.crashes import level as crashes
from campaign.load import level as load_level
from campaign.load.history import Load
from campaign.playing import play_world
from campaign.processes import level as processes
from campaign.progress import ROOT, Progress, load, revision_of_code, save
from campaign.soak import level as soak
from campaign.soak.drift import drifts
from campaign.spark import level as spark
from campaign.world import read
from emberkeep.base.errors import EmberkeepError

LEVELS = ("crashes", "simulation", "planted", "processes", "load", "spark", "soak")
STATES = ROOT / ".campaign"
EVENTS = 60


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def replay(path: Path, *, verbose: bool) -> int:
    """Play a kept world and print what happens. Return 1 if it breaks a rule."""
    kept = read(path)
    played = play_world(kept.world)
    history = played.report.history
    for event in history.last(len(history.events) if verbose else EVENTS):
        say(str(event))
    say(f"found once: {kept.found}")
    for violation in played.report.violations:
        say(f"violation: {violation}")
    return 1 if played.report.violations else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line that the module describes. Return its exit code: 1 if something has failed."""
    parser = argparse.ArgumentParser(prog="make campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time for all levels together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed continues a campaign, or repeats it")
    parser.add_argument("--levels", default="simulation", help=f"comma-separated, of {', '.join(LEVELS)}")
    parser.add_argument("--bugs", default="", help="planted bugs to look for, comma-separated; all if empty")
    parser.add_argument("--blob-mib", type=int, default=64, help="size of the large files of the level load")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="for progress and report (default: .campaign/<seed>)")
    parser.add_argument("--replay", type=Path, help="play this kept world alone")
    parser.add_argument("--verbose", action="store_true", help="with --replay: print all events")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        if options.replay.parent.name == "spark":
            return spark.replay(options.replay, say, verbose=options.verbose)
        if options.replay.parent.name == "load":
            return load_level.replay(options.replay, say, verbose=options.verbose)
        if options.replay.name.startswith("history-"):
            return processes.replay(options.replay, say, verbose=options.verbose)
        return replay(options.replay, verbose=options.verbose)
    levels = [level for level in options.levels.split(",") if level]
    unknown = sorted(set(levels) - set(LEVELS))
    if unknown or not levels:
        parser.error(f"--levels {options.levels!r}: choose of {', '.join(LEVELS)}")
    until = time.monotonic() + 60.0 * options.minutes
    try:
        return play(options, levels, until, options.folder or STATES / str(options.seed))
    except ValueError as error:
        say(f"error: {error}")
        return 1


def note_revision(revisions: list[str]) -> None:
    """Add the version of the code that plays now."""
    revision = revision_of_code()
    if revision not in revisions:
        revisions.append(revision)


def play_processes(progress: Progress, state: Path, until: float) -> bool:
    """Play histories of real processes. Return True if one has failed."""
    note_revision(progress.real.revisions)
    before = len(progress.real.failures)

    def took() -> bool:
        save(state, progress)
        return False

    folder = state.parent / "processes"
    try:
        asyncio.run(processes.run(progress.real, progress.seed, folder, until, say, took))
    except (EmberkeepError, TimeoutError) as error:
        say(f"error: the cluster does not start, or does not recover: {error}")
        return True
    return len(progress.real.failures) > before


def play_load(progress: Progress, state: Path, until: float, blob_bytes: int) -> bool:
    """Play histories under load. Return True if one has failed."""
    note_revision(progress.load.revisions)
    before, folder = len(progress.load.failures), state.parent / "load"

    def took() -> None:
        save(state, progress)

    wanted = Load(blob_bytes=blob_bytes)
    try:
        asyncio.run(load_level.run(progress.load, progress.seed, folder, until, say, took, load=wanted))
    except (EmberkeepError, TimeoutError) as error:
        say(f"error: the cluster does not start, or does not recover: {error}")
        return True
    return len(progress.load.failures) > before


def play_crashes(progress: Progress, state: Path, until: float, processes: int) -> bool:
    """Try crash points. Return True if one has failed."""
    note_revision(progress.crashes.revisions)
    crashes.run(progress.crashes, progress.seed, until, processes, say, lambda: save(state, progress))
    return bool(progress.crashes.failures)


def play_spark(progress: Progress, state: Path, until: float) -> bool:
    """Play histories of real PySpark. Return True if one has failed."""
    note_revision(progress.spark.revisions)
    before = len(progress.spark.failures)

    def took() -> None:
        save(state, progress)

    asyncio.run(spark.run(progress.spark, progress.seed, state.parent / "spark", until, say, took))
    return len(progress.spark.failures) > before


def play_soak(progress: Progress, state: Path, until: float) -> bool:
    """Live on with the soak. Return True if something grows, or has not ended as it must."""
    note_revision(progress.soak.revisions)

    def took() -> None:
        save(state, progress)

    try:
        asyncio.run(soak.run(progress.soak, progress.seed, state.parent / "soak", until, say, took))
    except (EmberkeepError, TimeoutError) as error:
        say(f"error: the cluster does not start, or does not recover: {error}")
        return True
    return bool(progress.soak.problems) or any(each.grows for each in drifts(progress.soak.samples))


def play(options: argparse.Namespace, levels: list[str], until: float, place: Path) -> int:
    """Play the levels in order, each until the time is over, and write the report."""
    state, failed = place / "progress.json", False
    progress = load(state, options.seed)
    if "crashes" in levels:
        failed = play_crashes(progress, state, until, options.processes)
    if "planted" in levels:
        names = tuple(name for name in options.bugs.split(",") if name)
        which = planted.bugs(names)
        hunts = list(planted.hunt_all(which, options.seed, until, options.processes, say))
        progress.hunts |= {each.name: each for each in hunts}
        save(state, progress)
        failed = failed or any(each.found is None for each in hunts)
        if len(hunts) < len(which):
            say(f"{len(which) - len(hunts)} of {len(which)} planted bugs were not hunted: the time is over")
    if "simulation" in levels:
        simulation.run(progress, state, until, options.processes, say)
        failed = failed or bool(progress.failures)
    if "processes" in levels:
        failed = play_processes(progress, state, until) or failed
    if "load" in levels:
        failed = play_load(progress, state, until, options.blob_mib << 20) or failed
    if "spark" in levels:
        failed = play_spark(progress, state, until) or failed
    if "soak" in levels:
        failed = play_soak(progress, state, until) or failed
    command = f"make campaign MINUTES={options.minutes:g} SEED={options.seed} LEVELS={','.join(levels)}"
    written = report.write(place / "report", progress, command)
    say(f"report: {written}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
