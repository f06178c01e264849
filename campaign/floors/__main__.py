"""``python -m campaign.floors``: find how few resources the daemons need, and print a table. Needs root and cgroup v1.

python -m campaign.floors --daemons jobmanager,taskmanager --resources descriptors,memory,disk
python -m campaign.floors --once jobmanager:descriptors:100
python -m campaign.floors --squeeze taskmanager:descriptors
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass

from campaign.floors.places import is_possible
from campaign.floors.search import smallest
from campaign.floors.squeeze import squeeze
from campaign.floors.trial import Resource, Trial, Tried, attempt


@dataclass(frozen=True)
class Range:
    """Where a floor is looked for: above ``low``, up to ``high``, in multiples of ``step``."""

    low: int
    high: int
    step: int
    unit: str


DAEMONS = ("jobmanager", "taskmanager")
RANGES = {
    Resource.DESCRIPTORS: Range(8, 512, 8, ""),
    Resource.MEMORY: Range(20, 512, 4, " MiB"),
    Resource.DISK: Range(20, 10_240, 20, " KiB"),
}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def floor(daemon: str, resource: Resource) -> str:
    """Return a row of the table: the floor, and what happens below it."""
    within = RANGES[resource]
    failures: dict[int, Tried] = {}

    async def works(amount: int) -> bool:
        tried = await attempt(Trial(daemon, resource, amount))
        say(f"{daemon} with {amount}{within.unit} of {resource}: {tried.problem or 'works'}")
        if not tried.works:
            failures[amount] = tried
        return tried.works

    found = await smallest(works, within.low, within.high, within.step)
    below = failures[max(failures)].problem if failures else ""
    amount = f"more than {within.high}{within.unit}" if found is None else f"{found}{within.unit}"
    return f"| {daemon} | {resource} | {amount} | {below} |"


async def search(daemons: list[str], resources: list[Resource]) -> None:
    rows = [await floor(daemon, resource) for daemon in daemons for resource in resources]
    say("\n| daemon | resource | floor | with a little less |\n|---|---|---|---|\n" + "\n".join(rows))


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
    asyncio.run(search(options.daemons.split(","), [Resource(each) for each in options.resources.split(",")]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
