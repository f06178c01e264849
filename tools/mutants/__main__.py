"""Try a sample of mutants against the fast tests, and list the survivors.

    python -m tools.mutants --sample 400 --seed 1 --packages slots,jobs

Results are kept in `.mutants.json`, so that a run that was interrupted continues where it was, and a repeated run
tries only what has changed. Two mutants run at a time.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.mutations import mutations
from tools.mutants.packages import PACKAGES, ROOT
from tools.mutants.spoiled_module import spoil

RESULTS = ROOT / ".mutants.json"
TIMEOUT = 240.0  # seconds for a stage; a mutant that hangs is caught
AT_ONCE = 2
CAUGHT, MISSED, TIMED_OUT = "caught", "survived", "timed out"
_TESTS_FAILED, _TESTS_BROKEN = 1, 2  # pytest's exit codes; with the latter a test module could not be imported
_NOT_RUN = 70
# Imported once by the process that forks: none of them imports Emberkeep.
WARM = ("pytest", "hypothesis", "aiohttp", "msgspec", "structlog", "anyio.pytest_plugin", "prometheus_client", "psutil")


@dataclass(frozen=True)
class Mutant:
    """One mutation of one file. ``key`` changes with the file's text."""

    package: str
    file: Path
    number: int
    line: int
    what: str
    source: str

    @property
    def key(self) -> str:
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:12]
        return f"{self.file.relative_to(ROOT)}:{self.line} #{self.number} {digest}"

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} {self.what}"


def mutants(package: str) -> Iterator[Mutant]:
    """Yield all mutants of a package, in a fixed order."""
    for file in PACKAGES[package].files():
        source = file.read_text(encoding="utf-8")
        for number, mutation in enumerate(mutations(ast.parse(source))):
            yield Mutant(package, file, number, mutation.line, mutation.what, source)


def start(mutant: Mutant | None, tests: tuple[str, ...]) -> int:
    """Fork a process that runs the tests with the mutant. Return its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = _NOT_RUN
    report = os.dup(2)
    try:
        os.setsid()
        with tempfile.TemporaryDirectory() as place:
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = place  # what a mutant breaks is no example to keep
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            if mutant is not None:
                spoil(mutant.file, mutant.number)
            pytest = importlib.import_module("pytest")
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1"]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # because of WARM
            code = int(pytest.main([*options, "-m", "not integration and not long", *tests]))
    except BaseException:
        os.write(report, traceback.format_exc().encode())
        raise
    finally:
        os._exit(code)


def outcome(pid: int, deadline: float) -> str | None:
    """Return what became of the process; None while it runs. End it at its deadline.

    Raises RuntimeError if the tests have not run.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        code = os.waitstatus_to_exitcode(status)
        if code > _TESTS_BROKEN:
            raise RuntimeError(f"pytest ended with {code}: are the tests in tools/mutants/packages.py there?")
        return MISSED if code == 0 else CAUGHT
    if time.monotonic() > deadline:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return TIMED_OUT
    return None


def tried(todo: list[Mutant], most_stages: int) -> Iterator[tuple[Mutant, str]]:
    """Run the mutants, each through its package's stages until one catches it. Yield results as they come."""
    waiting = [(mutant, 0) for mutant in reversed(todo)]
    running: dict[int, tuple[Mutant, int, float]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            mutant, stage = waiting.pop()
            pid = start(mutant, PACKAGES[mutant.package].stages[stage])
            running[pid] = (mutant, stage, time.monotonic() + TIMEOUT)
        time.sleep(0.05)
        for pid, (mutant, stage, deadline) in list(running.items()):
            result = outcome(pid, deadline)
            if result is None:
                continue
            del running[pid]
            if result == MISSED and stage + 1 < min(most_stages, len(PACKAGES[mutant.package].stages)):
                waiting.append((mutant, stage + 1))
            else:
                yield mutant, result


def check_unspoiled(packages: list[str]) -> None:
    """Run all tests without a mutant. Raises SystemExit if they fail: then they would prove nothing."""
    for package in packages:
        for tests in PACKAGES[package].stages:
            pid, deadline = start(None, tests), time.monotonic() + TIMEOUT
            while (result := outcome(pid, deadline)) is None:
                time.sleep(0.05)
            if result != MISSED:
                raise SystemExit(f"{package}: tests fail without a mutant: {' '.join(tests)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="how many mutants, over all packages")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    parser.add_argument("--packages", default=",".join(PACKAGES), help="comma-separated")
    parser.add_argument("--stages", type=int, default=3, help="at most so many stages of tests for each mutant")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests without a mutant first")
    options = parser.parse_args()
    packages = [name for name in PACKAGES if name in options.packages.split(",")]
    everything = [mutant for package in packages for mutant in mutants(package)]
    order = list(everything)
    random.Random(options.seed).shuffle(order)  # a larger sample with the same seed contains the smaller one
    sample = order[: options.sample]
    known: dict[str, str] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    done = {key for key, result in known.items() if not (options.again and result == MISSED)}
    todo = [mutant for mutant in sorted(sample, key=everything.index) if mutant.key not in done]
    print(f"{len(everything)} mutants, {len(sample)} sampled, {len(todo)} to try", flush=True)
    for name in WARM:
        importlib.import_module(name)
    if todo and not options.unchecked:
        check_unspoiled(packages)
    for mutant, result in tried(todo, options.stages):
        known[mutant.key] = result
        RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True))
        print(f"{result:9}  {mutant}", flush=True)
    return report(sample, known)


def report(sample: list[Mutant], known: dict[str, str]) -> int:
    """Print counts by package and the survivors. Return 1 if less than 95 % were caught."""
    print()
    for package in PACKAGES:
        counts = Counter(known[mutant.key] for mutant in sample if mutant.package == package)
        if counts:
            caught = counts.total() - counts[MISSED]
            print(f"{package:12} {caught:4} of {counts.total():4} caught ({caught / counts.total():.1%})")
    survivors = [mutant for mutant in sample if known[mutant.key] == MISSED]
    for mutant in survivors:
        print(f"survived: {mutant}")
    return 1 if len(survivors) > 0.05 * len(sample) else 0


if __name__ == "__main__":
    sys.exit(main())
