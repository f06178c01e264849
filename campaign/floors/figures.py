"""The floors that a search has found, as they are published, and the part of the page about limits that has them.

The rest of the page is written by hand, so only what is between two comments is replaced.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from campaign.progress import ROOT
from campaign.tables import table
from emberkeep.base.files.durable import write_file

FIGURES = ROOT / "docs" / "figures" / "floors.json"
PAGE = ROOT / "docs" / "limits.md"
_PLACE = re.compile(r"(?P<begin><!-- floors: .*? -->\n).*?(?P<end><!-- floors end -->\n)", re.DOTALL)


class Resource(StrEnum):
    """What a daemon may have little of. The unit of an amount belongs to it."""

    DESCRIPTORS = "descriptors"
    MEMORY = "memory"
    DISK = "disk"


UNITS = {Resource.DESCRIPTORS: "", Resource.MEMORY: " MiB", Resource.DISK: " KiB"}
DAEMONS = {"jobmanager": "JobManager", "taskmanager": "task manager"}


class Floor(msgspec.Struct, frozen=True):
    """The least with which a daemon works. ``is_enough``: False if not even that, the most that was tried, is."""

    daemon: str
    resource: Resource
    amount: int
    is_enough: bool = True

    def __str__(self) -> str:
        return f"{'' if self.is_enough else 'more than '}{self.amount:,}{UNITS[self.resource]}"


class Floors(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of the search has found. ``jobs``: which the daemons had to serve at a time."""

    version: int = 1
    system: str
    python: str
    jobs: int
    minutes: int
    floors: tuple[Floor, ...]

    @property
    def is_complete(self) -> bool:
        """True if every resource of every daemon was searched."""
        return len({(floor.daemon, floor.resource) for floor in self.floors}) == len(DAEMONS) * len(Resource)


def found_here(floors: Iterable[Floor], jobs: int, seconds: float) -> Floors:
    """Return what a search on this machine has found in so many seconds."""
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    python = ".".join(platform.python_version_tuple()[:2])
    return Floors(system=system, python=python, jobs=jobs, minutes=round(seconds / 60), floors=tuple(floors))


def write_floors(path: Path, floors: Floors) -> None:
    """Replace the published floors. Raises Fatal."""
    write_file(path, msgspec.json.format(msgspec.json.encode(floors), indent=1) + b"\n", mode=0o644)


def read_floors(path: Path) -> Floors:
    """Return the published floors. Raises ValueError if they cannot be read or are not complete."""
    try:
        floors = msgspec.json.decode(path.read_bytes(), type=Floors)
    except (msgspec.MsgspecError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not floors.is_complete:
        raise ValueError(f"{path} lacks a daemon or a resource: run `python -m campaign.floors`")
    return floors


def section(floors: Floors) -> str:
    """Return the Markdown about the floors."""
    amounts = {(floor.daemon, floor.resource): str(floor) for floor in floors.floors}
    rows = [(name, *(amounts[daemon, resource] for resource in Resource)) for daemon, name in DAEMONS.items()]
    lines = [
        f"One run on {floors.system} with Python {floors.python}, which took {floors.minutes} minutes. Each daemon"
        f" served {floors.jobs} jobs at a time, without Spark, with:",
        "",
        *table(("daemon", *Resource), rows),
    ]
    return "\n".join(lines)


def with_section(page: str, floors: Floors) -> str:
    """Return the page with what the floors say now. Raises ValueError if it has no place for them."""
    made, count = _PLACE.subn(lambda place: f"{place['begin']}\n{section(floors)}\n{place['end']}", page)
    if count != 1:
        raise ValueError(f"{PAGE}: {count} places for floors, instead of one between `floors:` and `floors end`")
    return made


def render() -> str:
    """Return the page about limits. Raises ValueError."""
    return with_section(PAGE.read_text(encoding="utf-8"), read_floors(FIGURES))
