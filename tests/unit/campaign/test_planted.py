"""The planted bugs: each has a head and applies to the product as it is."""

import subprocess
from pathlib import Path

import pytest

from campaign.planted import FOLDER, Bug, bugs, plant
from campaign.progress import ROOT

HEAD = "A lease is halved.\n\ndomain: jobs\nbudget: 20 worlds\n\n"


def test_every_planted_bug_applies_to_the_product() -> None:
    stale = []
    for bug in bugs():
        command = ["git", "apply", "--check", str(bug.path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            stale.append(f"{bug.name}: {done.stderr.strip()}")
    assert not stale, "\n".join(stale)


def test_there_are_planted_bugs() -> None:
    assert bugs()


def test_a_bug_is_planted_in_a_copy(tmp_path: Path) -> None:
    (bug,) = bugs(("drivers-are-not-adopted",))
    source = plant(bug, tmp_path)
    changed = (source / "emberkeep" / "taskmanager" / "recovery.py").read_text()
    assert "return [*executors]" in changed
    assert "return [*executors]" not in (ROOT / "src" / "emberkeep" / "taskmanager" / "recovery.py").read_text()


def test_a_patch_that_does_not_apply_any_more_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.patch"
    path.write_text(
        f"{HEAD}--- a/src/emberkeep/jobs/driver.py\n+++ b/src/emberkeep/jobs/driver.py\n@@ -1 +1 @@\n-no\n+yes\n"
    )
    with pytest.raises(ValueError, match=r"old\.patch does not apply any more"):
        plant(Bug("old", "", "jobs", 1, path), tmp_path / "copy")


def test_a_patch_needs_a_head_and_a_name_a_patch(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text(HEAD + "--- a/x\n")
    assert bugs(folder=tmp_path) == [Bug("a", "A lease is halved.", "jobs", 20, tmp_path / "a.patch")]
    with pytest.raises(ValueError, match="there is no planted bug b"):
        bugs(("b",), tmp_path)
    (tmp_path / "b.patch").write_text("--- a/x\n")
    with pytest.raises(ValueError, match=r"b\.patch must begin with"):
        bugs(folder=tmp_path)
    assert FOLDER.is_dir()
