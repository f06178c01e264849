"""The level ``simulation``: it plays, continues and reports; a world that fails is shrunk and kept."""

import json
from pathlib import Path

import pytest

from campaign.__main__ import main
from campaign.progress import Failure, Progress
from campaign.simulation import keep, keep_failure, note_mended
from campaign.swarm import draw_world
from campaign.world import PlannedFault, World, read
from tests.support.simulator.faults import Nemesis


def with_fault(world: World, kind: str) -> World:
    return World(
        family="mixed",
        plan=world.plan,
        jobs=world.jobs,
        faults=(*world.faults[:3], PlannedFault(9.0, kind, 90)),
        chaos_seconds=12.0,
        shortest=0.5,
        longest=2.0,
    )


def test_a_world_that_fails_is_shrunk_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Nemesis._bad_store

    def spoiled(self: Nemesis) -> object:
        self._cluster.history.violate("x", "the store was spoiled")
        return original(self)

    monkeypatch.setattr(Nemesis, "_bad_store", spoiled)
    world = with_fault(draw_world("unit-4"), "bad store")
    failure = keep_failure(world, 17, "x: the store was spoiled", tmp_path)
    (path,) = tmp_path.iterdir()
    kept = read(path)
    assert (failure.number, failure.kept) == (17, str(path))
    assert kept.found == "x: the store was spoiled"
    assert [fault.kind for fault in kept.world.faults] == ["bad store"]
    assert len(kept.world.jobs) == 1


def test_a_failure_whose_world_breaks_no_rule_any_more_is_mended(tmp_path: Path) -> None:
    world = with_fault(draw_world("unit-4"), "bad store")
    sound = Failure(3, "x: once", str(keep(world, "x: once", tmp_path)))
    missing = Failure(4, "y: still", str(tmp_path / "deleted.json"))
    progress = Progress(seed=1, failures=[sound, missing])
    note_mended(progress)
    assert (progress.failures, progress.mended) == ([missing], [sound])


@pytest.mark.long
def test_a_campaign_plays_continues_and_reports(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.02", "--seed", "3", "--processes", "1", "--folder", str(tmp_path)]
    for least in (8, 16):
        assert main(arguments) == 0
        data = json.loads((tmp_path / "report" / "report.json").read_text())
        assert data["simulation"]["progress"]["next"] >= least
        assert data["simulation"]["progress"]["failures"] == []
    assert "## Simulation" in (tmp_path / "report" / "report.md").read_text()


def test_an_unknown_level_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--levels", "simulation,everything"])
    assert "choose of crashes, simulation, planted" in capsys.readouterr().err
