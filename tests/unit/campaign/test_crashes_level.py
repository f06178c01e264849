"""The level of crash points tries components and pairs, continues where it was, and reports."""

import time

import pytest

from campaign.crashes import level
from campaign.crashes.figures import CrashFigures, PairFigures
from campaign.crashes.report import section
from tests.support.crashes.component import KINDS
from tests.support.crashes.everything import COMPONENTS
from tests.support.crashes.pairs.driver_and_gateway import PAIR


def test_a_chunk_is_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "CHUNK", 3)
    assert level.try_chunk(PAIR.name, 1, True, 7) == ["", "", ""]
    assert level.try_chunk(PAIR.name, 1, False, 0) == ["", "", ""]


def test_the_level_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "COMPONENTS", COMPONENTS[6:8])
    monkeypatch.setattr(level, "PAIRS", {PAIR.name: PAIR})
    figures, said = CrashFigures(), list[str]()
    seconds = 0.5
    while not figures.pairs or not figures.pairs[PAIR.name].in_turn:
        level.run(figures, 1, time.monotonic() + seconds, 1, said.append, lambda: None)
        seconds *= 2
    pair = figures.pairs[PAIR.name]
    assert pair.at_once % level.CHUNK == pair.in_turn % level.CHUNK == 0
    assert pair.at_once_of == 26 * sum(pair.steps), "two disks with five kinds each, or a refusal"
    assert not figures.failures
    text = "\n".join(section(figures, 1))
    assert f"| {PAIR.name} | {pair.steps[0]} and {pair.steps[1]} | {pair.at_once:,} of {pair.at_once_of:,} |" in text


def test_the_report_says_what_has_failed() -> None:
    figures = CrashFigures(pairs={"a and b": PairFigures(failures=["a and b: first at step 3: gone"])})
    text = "\n".join(section(figures, 1))
    assert "- a and b: first at step 3: gone" in text
    assert "| failed | 1 |" in text
    assert " | ".join(kind.lower() for kind in KINDS) in text
