"""The check of commit messages: what it refuses, which commits it looks at, and where it looks at none."""

import subprocess
from pathlib import Path

import pytest

from tools import check_commits

GOOD = "A deposed leader writes nothing\n\nIts writes were refused only by the ZooKeeper store.\n"


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(root: Path, message: str) -> str:
    git(root, "commit", "--quiet", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim", "-m", message)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    return tmp_path


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        f"{'x' * 72}\n\nWhy.",
        "Subject\n\nWhy.\n\nSigned-off-by: Nobody <nobody@example.com>\n",
    ],
)
def test_messages_with_short_subject_and_body_pass(message: str) -> None:
    assert check_commits.faults(message) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", ["has no subject"]),
        ("Subject\n", ["has no body: say why the change is made"]),
        ("Subject\n\n\n", ["has no body: say why the change is made"]),
        ("Subject\n\nCo-authored-by: Nobody <n@example.com>", ["has no body: say why the change is made"]),
        ("Subject\nthat goes on\n\nWhy.", ["no empty line between subject and body"]),
        (f"{'x' * 73}\n\nWhy.", ["subject has 73 characters, more than 72"]),
        ("x" * 80, ["subject has 80 characters, more than 72", "has no body: say why the change is made"]),
    ],
)
def test_other_messages_are_refused_with_each_reason(message: str, expected: list[str]) -> None:
    assert check_commits.faults(message) == expected


def test_comments_of_the_editor_are_no_body() -> None:
    text = "Subject\n\n# Please enter the message\n# ------------------------ >8 ------------------------\ndiff\n"
    assert check_commits.without_comments(text).strip() == "Subject"


def test_commits_after_the_start_are_checked_but_not_merges(root: Path) -> None:
    start = commit(root, "an old commit without a body")
    git(root, "branch", "side")
    new = commit(root, GOOD)
    git(root, "checkout", "--quiet", "side")
    aside = commit(root, "Aside\n\nWhy.\n")
    git(root, "merge", "--quiet", "--no-ff", "--no-edit", new)
    found = check_commits.new_commits(root, start)
    assert found is not None
    assert {hash_: message.strip() for hash_, message in found} == {new: GOOD.strip(), aside: "Aside\n\nWhy."}


def test_a_shallow_clone_has_its_newest_commit_checked(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    start = commit(root, "old")
    commit(root, "between")
    new = commit(root, GOOD)
    clone = tmp_path_factory.mktemp("shallow")
    git(clone, "clone", "--quiet", "--depth=1", f"file://{root}", ".")
    assert check_commits.new_commits(clone, start) == [(new, GOOD)]


def test_without_a_clone_of_its_own_no_commits_are_read(root: Path, tmp_path: Path) -> None:
    commit(root, "the history of somebody else")
    unpacked = tmp_path / "vendor" / "emberkeep"
    unpacked.mkdir(parents=True)
    assert check_commits.new_commits(unpacked, "HEAD") is None


def test_without_git_no_commits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_commits.new_commits(tmp_path, "HEAD") is None


def test_a_bad_message_fails_the_hook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text("Subject alone\n# a comment\n")
    assert check_commits.main(["--message", str(file)]) == 1
    assert "this message: has no body" in capsys.readouterr().out
    file.write_text(GOOD)
    assert check_commits.main(["--message", str(file)]) == 0


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_commits.main(["--wrong"]) == 2
    assert "usage" in capsys.readouterr().err
