"""A campaign continues where it was; its figures add up."""

from pathlib import Path

import pytest

from campaign.coverage import never, rarest
from campaign.progress import ROUND, Figures, Progress, load, save
from campaign.swarm import KINDS


def figures(kind: str) -> Figures:
    return Figures(
        worlds=1,
        cpu_seconds=0.5,
        faults={kind: 2},
        triples={f"d|RUNNING|{kind}": 1},
        outages={kind: {"0.00": 1, "3.50": 1}},
    )


def test_figures_add_up() -> None:
    total = Figures()
    for kind in ("kill driver", "kill driver", "flap link"):
        total.add(figures(kind))
    assert total == Figures(
        worlds=3,
        cpu_seconds=1.5,
        faults={"kill driver": 4, "flap link": 2},
        triples={"d|RUNNING|kill driver": 2, "d|RUNNING|flap link": 1},
        outages={"kill driver": {"0.00": 2, "3.50": 2}, "flap link": {"0.00": 1, "3.50": 1}},
    )


def test_a_campaign_continues_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "7" / "progress.json"
    progress = load(path, 7)
    progress.took(figures("kill driver"))
    save(path, progress)
    assert load(path, 7) == progress
    assert progress.next == 1


def test_a_round_ends_with_new_favourites_that_were_reached_least() -> None:
    progress = Progress(seed=1, next=ROUND - 1)
    progress.took(figures("kill driver"))
    assert progress.favoured
    assert "kill driver" not in progress.favoured


def test_within_a_round_the_favourites_stay() -> None:
    progress = Progress(seed=1, favoured=("flap link",))
    progress.took(figures("kill driver"))
    assert progress.favoured == ("flap link",)


def test_a_file_of_another_campaign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    save(path, Progress(seed=3))
    with pytest.raises(ValueError, match="version 1 and seed 3; remove it"):
        load(path, 4)
    path.write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        load(path, 3)


def test_what_was_never_reached_is_listed() -> None:
    missing = list(never([("d", "RUNNING", "kill driver")], ["kill driver"]))
    assert ("d", "RUNNING", "kill driver") not in missing
    assert ("e", "RUNNING", "kill driver") in missing


def test_the_rarest_kinds_come_first() -> None:
    triples = [("d", "RUNNING", kind) for kind in KINDS if kind != "flap link"]
    assert rarest(triples, KINDS, 1) == ["flap link"]
