"""Holds new commit messages to docs/style.md: `python -m tools.check_commits` prints each problem and exits 1.

A message has a subject of at most 72 characters, an empty line, and a body that says why. Commits up to `START` were
made before this rule. `--message FILE` checks the message of a commit that is being made: a `commit-msg` hook.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START = "f594540c5299a0b07034b235fe2169996696f361"
SUBJECT_CHARACTERS = 72

_TRAILER = re.compile(r"[A-Z][A-Za-z]*(-[A-Za-z]+)+: ")
_SCISSORS = re.compile(r"^# -+ >8 -+$.*", re.MULTILINE | re.DOTALL)


def faults(message: str) -> list[str]:
    """Return what is wrong with a commit message, as phrases; an empty list if nothing is."""
    subject, *rest = message.strip("\n").split("\n")
    found = []
    if not subject.strip():
        return ["has no subject"]
    if len(subject) > SUBJECT_CHARACTERS:
        found.append(f"subject has {len(subject)} characters, more than {SUBJECT_CHARACTERS}")
    if rest and rest[0].strip():
        found.append("no empty line between subject and body")
    elif not any(line.strip() and not _TRAILER.match(line) for line in rest):
        found.append("has no body: say why the change is made")
    return found


def without_comments(text: str) -> str:
    """Return the message that git takes from an editor's file."""
    lines = _SCISSORS.sub("", text).split("\n")
    return "\n".join(line for line in lines if not line.startswith("#"))


def new_commits(root: Path, start: str) -> list[tuple[str, str]] | None:
    """Return hash and message of each commit since `start`, merges excepted; None if `root` is not a git clone.

    A clone without `start` is shallow or has another history. Only its newest commit is certain to be a new one then,
    as it contains this file.
    """
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    if Path(top.strip()).resolve() != root.resolve():
        return None
    try:
        _git(root, "merge-base", "--is-ancestor", start, "HEAD")
        which = [f"{start}..HEAD"]
    except subprocess.CalledProcessError:
        which = ["--max-count=1", "--no-walk", "HEAD"]
    records = _git(root, "log", "-z", "--no-merges", "--format=%H%n%B", *which).split("\0")
    return [(commit, message) for commit, _, message in (record.partition("\n") for record in records if record)]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


def main(arguments: list[str]) -> int:
    """Check all new commits, or with `--message FILE` one message."""
    match arguments:
        case []:
            commits = new_commits(ROOT, START)
        case ["--message", path]:
            commits = [("this message", without_comments(Path(path).read_text()))]
        case _:
            print("usage: python -m tools.check_commits [--message FILE]", file=sys.stderr)
            return 2
    if commits is None:
        print("commits: not a git clone, none checked")
        return 0
    problems = [(commit[:12], message, fault) for commit, message in commits for fault in faults(message)]
    for commit, message, fault in problems:
        print(f"{commit}: {fault}: {message.strip().split(chr(10))[0][:100]}")
    if problems:
        print("commits: see docs/style.md#commits; `git rebase -i` and `git commit --amend` change messages")
        return 1
    print(f"commits: {len(commits)} in order")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
