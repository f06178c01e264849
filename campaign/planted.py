"""The level ``planted``: bugs that are planted in copies of the product, which worlds must find.

Each file of the folder ``planted_bugs`` is a bug: a few lines that say what it is, and a patch. The patch must apply to
the product as it is now. Nothing tells the campaign where to look: it plays the same kinds of worlds as without a bug.

Bugs in what no world reaches name tests instead: one of these must fail. Or they name the level ``processes``: one of
its histories must fail.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import msgspec

from campaign.progress import ROOT, Hunt

FOLDER = Path(__file__).parent / "planted_bugs"
_HEAD = re.compile(
    r"\A(?P<what>.+?)\n\ndomain: (?P<domain>[\w/]+)\n"
    r"(?:rule: (?P<rule>\w)\nbudget: (?P<worlds>\d+) worlds|tests: (?P<tests>.+?)\nbudget: (?P<seconds>\d+) seconds"
    r"|level: processes\nbudget: (?P<histories>\d+) histories)"
    r"\n\n(?=diff |--- )",
    re.DOTALL,
)
_SECONDS_PER_WORLD = 20.0  # at the utmost, on a busy machine
_SECONDS_PER_HISTORY = 400.0
_ALONE = threading.Lock()  # two clusters of real processes would only slow each other down


class Bug(msgspec.Struct, frozen=True):
    """A planted bug.

    ``budget``: the number of worlds or histories within which it must be found; the seconds of processor time if it
    names ``tests``. ``rule``: the rule that has found it first, for people; "" if no world looks for it.
    """

    name: str
    what: str
    domain: str
    budget: int
    path: Path
    rule: str = ""
    tests: tuple[str, ...] = ()

    @property
    def unit(self) -> Literal["worlds", "tests", "histories"]:
        """What looks for it."""
        return "tests" if self.tests else "worlds" if self.rule else "histories"


class Found(msgspec.Struct, frozen=True):
    """What ``campaign.hunt``, ``campaign.tested`` and ``campaign.processes.hunt`` print."""

    product: str  # the file of the package that it has imported
    found: int | None  # number of the world, test or history
    violation: str
    cpu_seconds: float


def bugs(names: tuple[str, ...] = (), folder: Path = FOLDER) -> list[Bug]:
    """Return the planted bugs, or those with these names.

    Raises ValueError if a file has no head, or a name no file.
    """
    found = []
    for path in sorted(folder.glob("*.patch")):
        head = _HEAD.match(path.read_text(encoding="utf-8"))
        if head is None:
            raise ValueError(
                f"{path} must begin with what the bug is, an empty line, its domain, its rule, tests or level, and its "
                "budget"
            )
        what, budget = " ".join(head["what"].split()), int(head["worlds"] or head["seconds"] or head["histories"])
        tests = tuple((head["tests"] or "").split())
        found.append(Bug(path.stem, what, head["domain"], budget, path, head["rule"] or "", tests))
    unknown = sorted(set(names) - {bug.name for bug in found})
    if unknown:
        raise ValueError(f"there is no planted bug {', '.join(unknown)} in {folder}")
    return [bug for bug in found if not names or bug.name in names]


def plant(bug: Bug, place: Path) -> Path:
    """Copy the product to ``place`` and apply the bug there. Return the copy's source folder.

    Raises ValueError if the patch does not apply.
    """
    source = place / "src"
    shutil.copytree(ROOT / "src" / "emberkeep", source / "emberkeep", ignore=shutil.ignore_patterns("__pycache__"))
    # Within a repository, git would leave out files that are not part of it.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(place.parent)}
    command = ["git", "apply", str(bug.path)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{bug.path} does not apply any more, write it again: {done.stderr.strip()}")
    return source


def hunt(bug: Bug, seed: int) -> Hunt:
    """Let worlds, tests or histories look for a bug, in a process of its own.

    Raises ValueError if it could not be planted.
    """
    unit = bug.unit
    with tempfile.TemporaryDirectory(prefix="emberkeep-planted-") as place:
        source = plant(bug, Path(place).resolve())
        environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "campaign.hunt", str(seed), str(bug.budget)]
        if bug.tests:
            command = [sys.executable, "-m", "campaign.tested", str(bug.budget), *bug.tests]
        if unit == "histories":
            command = [sys.executable, "-m", "campaign.processes.hunt", str(seed), str(bug.budget)]
        seconds = 60.0 + bug.budget * (_SECONDS_PER_HISTORY if unit == "histories" else _SECONDS_PER_WORLD)
        try:
            done = subprocess.run(
                command, env=environment, cwd=place, capture_output=True, text=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"the hunt for {bug.name} did not end within {seconds:.0f} s") from error
        if bug.tests and done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return Hunt(bug.name, bug.domain, bug.budget, None, "", float(bug.budget), unit)
        if done.returncode != 0:
            raise ValueError(f"the hunt for {bug.name} has failed:\n{done.stderr}")
        found = msgspec.json.decode(done.stdout, type=Found)
        if not found.product.startswith(str(source)):
            raise ValueError(f"the hunt for {bug.name} has imported {found.product}, not the copy with the bug")
    return Hunt(bug.name, bug.domain, bug.budget, found.found, found.violation, found.cpu_seconds, unit)


def hunt_all(which: list[Bug], seed: int, until: float, processes: int, show: Callable[[str], None]) -> Iterator[Hunt]:
    """Hunt bugs until a time (of ``time.monotonic``), several at a time. Yield what became of each, in order."""

    def one(bug: Bug) -> Hunt | None:
        if time.monotonic() > until:
            return None
        with _ALONE if bug.unit == "histories" else nullcontext():
            found = hunt(bug, seed)
        show(f"{bug.name}: " + ("NOT FOUND" if found.found is None else f"{found.by}: {found.violation}"))
        return found

    with ThreadPoolExecutor(processes) as pool:
        yield from (found for found in pool.map(one, which) if found is not None)
