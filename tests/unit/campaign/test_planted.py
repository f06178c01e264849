"""The planted bugs: each has a head and applies to the product as it is."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from campaign.coverage import RULES
from campaign.planted import FOLDER, Bug, Found, bugs, plant
from campaign.progress import ROOT

HEAD = "A lease is halved.\n\ndomain: jobs\nrule: d\nbudget: 20 worlds\n\n"
TESTED = "A sync is forgotten.\n\ndomain: base/files\ntests: tests/a.py tests/b.py\nbudget: 60 seconds\n\n"


def test_every_planted_bug_applies_to_the_product() -> None:
    stale = []
    for bug in bugs():
        command = ["git", "apply", "--check", str(bug.path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            stale.append(f"{bug.name}: {done.stderr.strip()}")
    assert not stale, "\n".join(stale)


def test_there_are_as_many_planted_bugs_as_promised() -> None:
    assert len(bugs()) >= 60
    assert len(Counter(bug.domain for bug in bugs())) >= 20
    page = " ".join((ROOT / "docs" / "reliability-lab.md").read_text().split())
    assert f"`campaign/planted_bugs` has {len(bugs())} small patches" in page


def test_a_planted_bug_names_a_rule_or_tests_that_exist() -> None:
    for bug in bugs():
        assert not (bug.rule and bug.tests), bug.name
        assert bug.unit == "histories" or bug.rule or bug.tests, bug.name
        assert not bug.rule or bug.rule in RULES, bug.name
        assert all((ROOT / name).exists() for name in bug.tests), bug.name


def test_no_two_planted_bugs_are_the_same() -> None:
    changes = Counter(bug.path.read_text().partition("\n--- ")[2] for bug in bugs())
    assert [change for change, count in changes.items() if count > 1] == []


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
    assert bugs(folder=tmp_path) == [Bug("a", "A lease is halved.", "jobs", 20, tmp_path / "a.patch", "d")]
    with pytest.raises(ValueError, match="there is no planted bug b"):
        bugs(("b",), tmp_path)
    (tmp_path / "b.patch").write_text("--- a/x\n")
    with pytest.raises(ValueError, match=r"b\.patch must begin with"):
        bugs(folder=tmp_path)
    assert FOLDER.is_dir()


def test_a_patch_may_name_tests_and_the_time_that_they_have(tmp_path: Path) -> None:
    path = tmp_path / "a.patch"
    path.write_text(TESTED + "--- a/x\n")
    tests = ("tests/a.py", "tests/b.py")
    assert bugs(folder=tmp_path) == [Bug("a", "A sync is forgotten.", "base/files", 60, path, tests=tests)]
    path.write_text(TESTED.replace("60 seconds", "60 worlds") + "--- a/x\n")
    with pytest.raises(ValueError, match="its rule, tests or level"):
        bugs(folder=tmp_path)


def test_a_patch_may_name_the_level_of_real_processes(tmp_path: Path) -> None:
    path = tmp_path / "a.patch"
    head = "A lease is not asked.\n\ndomain: jobmaster\nlevel: processes\nbudget: 4 histories\n\n"
    path.write_text(f"{head}--- a/x\n")
    (bug,) = bugs(folder=tmp_path)
    assert (bug.unit, bug.budget, bug.rule, bug.tests) == ("histories", 4, "", ())


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert 1 + 1 == 3, 'sums differ'", (2, "test_b: sums differ")),
        ("assert 1 + 1 == 2", (None, "")),
        ("len(None)", (None, "")),  # a crash of the interpreter is no finding
    ],
)
def test_the_first_test_that_fails_finds_a_bug(tmp_path: Path, body: str, found: tuple[int | None, str]) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(f"def test_a() -> None:\n    pass\n\n\ndef test_b() -> None:\n    {body}\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "campaign.tested", "60", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = msgspec.json.decode(done.stdout, type=Found)
    assert (said.found, said.violation.partition("\n")[0]) == found, done.stderr
