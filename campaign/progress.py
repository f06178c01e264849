"""What a campaign has done so far, as a file: it continues there in the next run, until enough has been played."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import msgspec

from campaign.coverage import Triple, rarest
from campaign.crashes.figures import CrashFigures
from campaign.load.figures import LoadFigures
from campaign.playing import Played
from campaign.processes.figures import ProcessFigures, add_counts
from campaign.soak.figures import SoakFigures
from campaign.spark.figures import SparkFigures
from campaign.swarm import KINDS
from campaign.world import World
from emberkeep.base.files.durable import write_file

VERSION = 1
ROUND = 256  # worlds after which the coverage decides anew which kinds of faults are favoured
FAVOURED = 8
_ONE = {"worlds": "world", "tests": "test", "histories": "history"}
ROOT = Path(__file__).parents[1]


class Failure(msgspec.Struct, frozen=True):
    """A world that has broken a rule. ``kept``: the file with the shrunk world, relative to the checkout."""

    number: int
    violation: str
    kept: str


class Hunt(msgspec.Struct, frozen=True):
    """What became of a planted bug. ``found``: number of the first world that found it, from 1; None if none did.

    ``unit``: what looked for it. ``budget``: a number of worlds or histories, or the seconds of processor time that
    tests may take.
    """

    name: str
    domain: str
    budget: int
    found: int | None
    violation: str
    cpu_seconds: float
    unit: Literal["worlds", "tests", "histories"] = "worlds"

    @property
    def by(self) -> str:
        """The world, test or history that has found it."""
        return f"{_ONE[self.unit]} {self.found}"


class Figures(msgspec.Struct):
    """What one world, or many, have shown. Counts are by name; outages by kind of fault and seconds."""

    worlds: int = 0
    cpu_seconds: float = 0.0
    virtual_seconds: float = 0.0
    faults: dict[str, int] = {}
    families: dict[str, int] = {}
    results: dict[str, int] = {}
    triples: dict[str, int] = {}  # "rule|state|fault"
    outages: dict[str, dict[str, int]] = {}

    def add(self, other: Figures) -> None:
        """Add what others have shown."""
        self.worlds += other.worlds
        self.cpu_seconds += other.cpu_seconds
        self.virtual_seconds += other.virtual_seconds
        for mine, others in (
            (self.faults, other.faults),
            (self.families, other.families),
            (self.results, other.results),
            (self.triples, other.triples),
        ):
            add_counts(mine, others)
        for kind, seconds in other.outages.items():
            add_counts(self.outages.setdefault(kind, {}), seconds)

    def reached(self) -> list[Triple]:
        """Return the triples that were reached."""
        return [(rule, state, kind) for rule, state, kind in (each.split("|") for each in self.triples)]


def figures_of(world: World, played: Played) -> Figures:
    """Return what one world has shown."""
    outages: dict[str, dict[str, int]] = {}
    for (kind, seconds), count in played.outages.items():
        outages.setdefault(kind, {})[f"{seconds:.2f}"] = count
    results = {what: count for what, count in played.report.counts.items() if what.startswith("result ")}
    return Figures(
        worlds=1,
        cpu_seconds=played.cpu_seconds,
        virtual_seconds=played.report.virtual_seconds,
        faults=dict(played.faults),
        families={world.family: 1},
        results=results,
        triples=dict.fromkeys(("|".join(triple) for triple in played.triples), 1),
        outages=outages,
    )


class Progress(msgspec.Struct, kw_only=True):
    """A campaign. ``next``: number of the world that comes next; ``favoured``: kinds of faults of this round."""

    version: int = VERSION
    seed: int
    next: int = 0
    favoured: tuple[str, ...] = ()
    seconds: float = 0.0  # real time, of all runs
    processes: int = 0
    revisions: list[str] = []
    figures: Figures = msgspec.field(default_factory=Figures)
    failures: list[Failure] = []
    mended: list[Failure] = []  # failures whose kept worlds break no rule any more
    hunts: dict[str, Hunt] = {}  # the newest for each planted bug
    real: ProcessFigures = msgspec.field(default_factory=ProcessFigures)  # of the level ``processes``
    crashes: CrashFigures = msgspec.field(default_factory=CrashFigures)
    load: LoadFigures = msgspec.field(default_factory=LoadFigures)  # of the level ``load``
    soak: SoakFigures = msgspec.field(default_factory=SoakFigures)  # of the level ``soak``
    spark: SparkFigures = msgspec.field(default_factory=SparkFigures)  # of the level ``spark``

    def took(self, figures: Figures) -> None:
        """Add the figures of the next world. At the end of a round, favour what was reached least."""
        self.figures.add(figures)
        self.next += 1
        if self.next % ROUND == 0:
            self.favoured = tuple(rarest(self.figures.reached(), KINDS, FAVOURED))

    def begin_run(self, processes: int) -> None:
        """Note with which code, and in how many processes, the campaign continues."""
        self.processes = processes
        revision = revision_of_code()
        if revision not in self.revisions:
            self.revisions.append(revision)


def load(path: Path, seed: int) -> Progress:
    """Return the campaign of a file, or a new one.

    Raises ValueError if the file is damaged, or of another version or seed.
    """
    if not path.exists():
        return Progress(seed=seed)
    try:
        progress = msgspec.json.decode(path.read_bytes(), type=Progress)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} cannot be read: {error}; remove it to begin the campaign again") from error
    if (progress.version, progress.seed) != (VERSION, seed):
        raise ValueError(f"{path} has version {progress.version} and seed {progress.seed}; remove it, or move it away")
    return progress


def save(path: Path, progress: Progress) -> None:
    """Replace the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, msgspec.json.encode(progress))


def revision_of_code() -> str:
    """Return the version of the code, and whether it has changes that are not committed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
