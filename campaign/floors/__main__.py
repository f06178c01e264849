"""``python -m campaign.floors``: find how few resources the daemons need. Needs root and cgroup v1.

A search of all resources of all daemons is published: it replaces `docs/figures/floors.json`.

python -m campaign.floors --daemons jobmanager,taskmanager --resources descriptors,memory,disk
python -m campaign.floors --once jobmanager:descriptors:100
python -m campaign.floors --squeeze taskmanager:descriptors
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from campaign.floors.figures import DAEMONS, FIGURES, UNITS, Floor, Resource, found_here, write_floors
from campaign.floors.places import is_possible
from campaign.floors.search import smallest
from campaign.floors.squeeze import squeeze
from campaign.floors.trial import JOBS, Trial, Tried, attempt
from campaign.tables import table


@dataclass(frozen=True)
class Range:
    """Where a floor is looked for: above ``low``, up to ``high``, in multiples of ``step``."""

    low: int
    high: int
    step: int


RANGES = {
    Resource.DESCRIPTORS: Range(8, 512, 8),
    Resource.MEMORY: Range(20, 512, 4),
    Resource.DISK: Range(20, 10_240, 20),
}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def find_floor(daemon: str, resource: Resource) -> tuple[Floor, str]:
    """Return the floor, and what happened with a little less."""
    within = RANGES[resource]
    failures: dict[int, Tried] = {}

    async def works(amount: int) -> bool:
        tried = await attempt(Trial(daemon, resource, amount))
        say(f"{daemon} with {amount}{UNITS[resource]} of {resource}: {tried.problem or 'works'}")
        if not tried.works:
            failures[amount] = tried
        return tried.works

    found = await smallest(works, within.low, within.high, within.step)
    below = failures[max(failures)].problem if failures else ""
    return Floor(daemon, resource, within.high if found is None else found, found is not None), below


async def search(daemons: list[str], resources: list[Resource], target: Path) -> None:
    """Find floors and print them. Write them to ``target`` if nothing was left out. Raises Fatal."""
    began = time.monotonic()
    found = [await find_floor(daemon, resource) for daemon in daemons for resource in resources]
    rows = [(floor.daemon, str(floor.resource), str(floor), below) for floor, below in found]
    say("\n" + "\n".join(table(("daemon", "resource", "floor", "with a little less"), rows)))
    floors = found_here([floor for floor, _ in found], JOBS, time.monotonic() - began)
    if floors.is_complete:
        write_floors(target, floors)
        say(f"written to {target}: `python -m tools.check_docs --write` brings the page about limits up to date")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line that the module describes. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m campaign.floors", description=__doc__)
    parser.add_argument("--daemons", default=",".join(DAEMONS))
    parser.add_argument("--resources", default=",".join(Resource))
    parser.add_argument("--once", default="", help="DAEMON:RESOURCE:AMOUNT: try this alone")
    parser.add_argument("--squeeze", default="", help="DAEMON:RESOURCE: take it away from a running daemon for a while")
    options = parser.parse_args(arguments)
    if not is_possible():
        parser.error("this needs root, and a memory hierarchy of cgroup v1 at /sys/fs/cgroup/memory")
    if options.squeeze:
        daemon, resource = options.squeeze.split(":")
        squeezed = asyncio.run(squeeze(daemon, Resource(resource)))
        say(f"a submission was told: {squeezed.refusal or 'nothing: it was accepted, or waits'}")
        say("\n".join(squeezed.problems) or "nothing was lost")
        return 1 if squeezed.problems else 0
    if options.once:
        daemon, resource, amount = options.once.split(":")
        tried = asyncio.run(attempt(Trial(daemon, Resource(resource), int(amount))))
        say(tried.problem or "works")
        return 0 if tried.works else 1
    resources = [Resource(each) for each in options.resources.split(",")]
    asyncio.run(search(options.daemons.split(","), resources, FIGURES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
