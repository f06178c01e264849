"""What jobs have stored through state gateways is judged by what is there in the end."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from campaign.processes.deeds import Deed
from campaign.processes.gateways.stored import StoredEntry, judge_stored, read_stored


def deed(attempt: int, at: float, what: str, number: int = 0, asked: float = 0.0, why: str = "") -> Deed:
    return Deed(attempt=attempt, pid=attempt, what=what, at=at, number=number, asked=asked, why=why)


def steps(attempt: int, number: int, asked: float) -> list[Deed]:
    return [
        deed(attempt, asked + 0.1, "renaming", number, asked),
        deed(attempt, asked + 0.2, "stored", number, asked),
    ]


def entry(number: int, attempt: int, asked: float, name: str = "") -> StoredEntry:
    return StoredEntry(name=name or str(number), attempt=attempt, number=number, asked=asked)


DEEDS = [
    deed(1, 0.5, "admitted"),
    *steps(1, 1, 1.0),
    *steps(1, 2, 2.0),
    deed(1, 3.1, "renaming", 3, 3.0),
    deed(2, 9.0, "admitted"),
    *steps(2, 4, 10.0),
]
FOUND = [entry(1, 1, 1.0), entry(2, 1, 2.0), entry(3, 1, 3.0), entry(4, 2, 10.0), entry(3, 1, 2.5, ".3.x.tmp")]


@pytest.mark.parametrize(
    ("more", "found", "violation"),
    [
        pytest.param([], FOUND, "", id="the last rename of the older attempt had no reply"),
        pytest.param([], [*FOUND[:1], *FOUND[2:]], "entry 2 of attempt 1 was acknowledged at 2.200", id="lost"),
        pytest.param([], [*FOUND[:2], *FOUND[3:]], "entry 3 is missing", id="lost before its reply"),
        pytest.param(
            [], [*FOUND, entry(2, 1, 2.0, "5")], "entry 2 of attempt 1 is stored 2 times", id="under two names"
        ),
        pytest.param(
            [],
            [*FOUND, entry(5, 1, 4.0)],
            "entry 5 of attempt 1 follows one of attempt 2",
            id="an older attempt goes on",
        ),
        pytest.param(
            [deed(1, 9.5, "renaming", 3, 3.0)],
            FOUND,
            "attempt 1 has stored 3, asked for at 9.500, but a newer attempt was admitted at 9.000",
            id="an older attempt renames",
        ),
        pytest.param(
            [],
            [*FOUND, entry(5, 1, 9.5, ".5.y.tmp")],
            "attempt 1 has stored .5.y.tmp, asked for at 9.500",
            id="an older attempt uploads",
        ),
        pytest.param([], [*FOUND, StoredEntry(name=".5.y.tmp")], "the stored file .5.y.tmp is damaged", id="torn"),
        pytest.param(
            [deed(1, 11.0, "refused", why="AccessControlException")], FOUND, "", id="an older attempt is refused"
        ),
        pytest.param(
            [deed(1, 11.0, "refused", why="FileAlreadyExistsException")],
            FOUND,
            "attempt 1 was refused to rename entry 3, which its own request had done",
            id="a repeated rename is taken for another's",
        ),
        pytest.param(
            [deed(1, 9.5, "renaming", 4, 3.0), deed(1, 9.6, "refused", why="FileAlreadyExistsException")],
            FOUND,
            "attempt 1 asked at 9.500 to rename entry 4, and was not refused as an attempt that is over",
            id="only the name keeps an older attempt out",
        ),
        pytest.param(
            [deed(1, 8.5, "renaming", 4, 3.0), deed(1, 9.6, "refused", why="FileAlreadyExistsException")],
            FOUND,
            "",
            id="a rename was under way",
        ),
        pytest.param(
            [deed(2, 12.0, "refused", why="FileNotFoundException")],
            FOUND,
            "attempt 2 was refused at 12.000 with FileNotFoundException",
            id="an upload is gone",
        ),
    ],
)
def test_the_files_of_a_job(more: list[Deed], found: list[StoredEntry], violation: str) -> None:
    violations = judge_stored([*DEEDS, *more], found)
    assert len(violations) >= bool(violation), violations
    assert not violations if not violation else any(violation in each for each in violations)


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    assert read_stored(tmp_path) == ()
    entries = tmp_path / "state" / "entries"
    entries.mkdir(parents=True)
    whole = entry(1, 2, 0.1 + 0.2)
    content = {key: value for key, value in msgspec.to_builtins(whole).items() if key != "name"}
    (entries / "1").write_text(json.dumps(content))
    (entries / ".2.x.tmp").write_text("")
    assert read_stored(tmp_path) == (StoredEntry(name=".2.x.tmp"), whole)
