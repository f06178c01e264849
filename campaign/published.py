"""What the project publishes of its campaigns and measurements, in `docs/figures`, and a page that is made of it.

python -m campaign.published .campaign/1/progress.json bench/results/2026-11-27T130129Z.json

copies them there. ``render`` is the page `docs/reliability.md`, which `python -m tools.check_docs --write` writes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from campaign.progress import ROOT, Progress
from campaign.reliability_page import Bench, Finding, Findings, page
from emberkeep.base.files.durable import write_file

T = TypeVar("T")

FOLDER = ROOT / "docs" / "figures"
GUARANTEES = ROOT / "docs" / "guarantees.md"
_DEPTH = 2  # of `.campaign/<seed>/progress.json` below the top of the source tree
_COMPARED = ("start", "recovery", "standby-costs", "executor-loss", "node-loss", "flink")
_PROMISE = re.compile(r"^\| (?!promise \||---|about \|)(?P<promise>.+) \| (?P<tests>`.+`) \|$", re.MULTILINE)


def render() -> str:
    """Return the page. Raises ValueError if a published file cannot be read."""
    campaigns = [_read(path, Progress) for path in sorted(FOLDER.glob("campaign-*.json"))]
    benches = [_read(path, Bench) for path in sorted(FOLDER.glob("bench-*.json"))]
    findings = _read(FOLDER / "findings.json", Findings).findings
    for finding in findings:
        _check(finding)
    return page(campaigns, benches, findings, _promises())


def publish(path: Path) -> Path:
    """Copy a campaign's progress, or the sections of a measurement that the page has. Return the copy.

    Paths in it begin at the top of the source tree. Raises ValueError if the file is neither.
    """
    data = path.read_bytes()
    if b'"emberkeep-bench"' in data:
        bench = _read(path, Bench)
        kept = [section for section in bench.sections if section.name in _COMPARED]
        if not kept:
            raise ValueError(f"{path} has none of the sections {', '.join(_COMPARED)}")
        name = f"bench-{'-'.join(section.name for section in kept)}.json"
        data = msgspec.json.encode(msgspec.structs.replace(bench, sections=kept))
    else:
        name = f"campaign-{_read(path, Progress).seed}.json"
        data = data.replace(f"{path.resolve().parents[_DEPTH]}/".encode(), b"")  # where somebody has played it
    FOLDER.mkdir(parents=True, exist_ok=True)
    target = FOLDER / name
    write_file(target, msgspec.json.format(data, indent=1) + b"\n", mode=0o644)
    return target


def _promises() -> tuple[int, int]:
    """Return how many promises the guarantees have, and how many different tests show them."""
    found = _PROMISE.findall(GUARANTEES.read_text(encoding="utf-8"))
    return len(found), len({test for _, tests in found for test in re.findall(r"`([^`]+)`", tests)})


def _check(finding: Finding) -> None:
    if not (ROOT / "tests" / finding.test).is_file():
        raise ValueError(f"{FOLDER / 'findings.json'}: tests/{finding.test} does not exist")


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def main(paths: Sequence[str]) -> int:
    """Publish files. Return the exit code: 1 if one cannot be published, 2 without any."""
    if not paths:
        sys.stderr.write(__doc__ or "")
        return 2
    for path in paths:
        try:
            sys.stdout.write(f"{publish(Path(path)).relative_to(ROOT)}\n")
        except ValueError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
