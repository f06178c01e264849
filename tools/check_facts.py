"""Facts that pages state about the code, compared with the code; `tools.check_docs` prints what differs.

Compared: requirement ids with docs/requirements.md; the tables of packages, rooms and messages in docs/architecture.md
with the folders and messages that there are; source files that pages name with those that exist; the size of folders
with what ADR 20 says.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from emberkeep.protocol.messages.requests import REQUESTS

_REQUIREMENT = re.compile(r"\b(?:BLOB|HA|LOC|ELASTIC|BLK|END|NET|RES|SAFE|SEC)-\d+\b")
_DEFINED = re.compile(r"^\| ([A-Z]+-\d+) \|")
_MARK = re.compile(r"\breq\(([^)]*)\)")
_PLANNED = "SEC-"
_SOURCE = re.compile(r"`((?:src|tests|tools|bench|campaign|examples)/[\w./-]+\.\w+)`")

_MOST_MODULES = 20
_COUNTED = ("src", "airflow_provider", "bench", "campaign", "demo", "examples", "tests", "tools")

Finding = tuple[Path, int, str]  # file, line from 1, what is wrong


def requirements(page: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Ids without a definition, definitions without a test, and ids that are defined twice."""
    defined: dict[str, int] = {}
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if found := _DEFINED.match(line):
            if found.group(1) in defined:
                yield page, number, f"{found.group(1)} is defined twice"
            defined[found.group(1)] = number
    tested: set[str] = set()
    for file in files:
        if file.suffix not in {".py", ".md", ".js", ".html"} or file.stem == "test_check_facts":
            continue
        text = file.read_text()
        for mark in _MARK.findall(text):
            tested.update(_REQUIREMENT.findall(mark))
        for number, line in enumerate(text.splitlines(), 1):
            for name in _REQUIREMENT.findall(line):
                if name not in defined:
                    yield file, number, f"{name} is not in {page.name}"
    for name, number in defined.items():
        if name not in tested and not name.startswith(_PLANNED):
            yield page, number, f"no test names {name}"


def source_files(root: Path, page: Path) -> Iterator[Finding]:
    """Source files that a page names and that do not exist."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for name in _SOURCE.findall(line):
            if not (root / name).exists():
                yield page, number, f"there is no {name}"


def messages(page: Path) -> Iterator[Finding]:
    """Requests that the table of messages lacks, and those in it that do not exist."""
    number, rows = _section(page, "Messages")
    named = set(re.findall(r"`([A-Z]\w+)`", "\n".join(row for row in rows if row.startswith("|"))))
    for name in sorted(REQUESTS.keys() - named):
        yield page, number, f"the table of messages lacks {name}"
    for name in sorted(named - REQUESTS.keys()):
        yield page, number, f"the table of messages has {name}, which is not a request"


def packages(root: Path, page: Path) -> Iterator[Finding]:
    """Packages and rooms that the tables lack, and those in them that do not exist."""
    source = root / "src" / "emberkeep"
    number, rows = _section(page, "Packages")
    split = next((index for index, row in enumerate(rows) if row.startswith("| package | rooms")), len(rows))
    named = {name for row in rows[:split] if row.startswith("| `") for name in re.findall(r"`(\w+)`", _first(row))}
    for name in sorted(_folders(source) ^ named):
        problem = "lacks" if name in _folders(source) else "has, without such a folder,"
        yield page, number, f"the table of packages {problem} {name}"
    for row in rows[split:]:
        if row.startswith("| `"):
            package = _first(row).strip("` ")
            rooms = set(re.findall(r"`(\w+)`", row.split("|")[2]))
            for name in sorted(_folders(source / package) ^ rooms):
                problem = "lacks" if name in _folders(source / package) else "has, without such a folder,"
                yield page, number, f"the table of rooms {problem} {package}.{name}"


def full_folders(root: Path) -> Iterator[Finding]:
    """Folders with more modules than ADR 20 allows."""
    for top in (root / name for name in _COUNTED):
        for folder in sorted({file.parent for file in top.rglob("*.py")}):
            count = sum(file.name != "__init__.py" for file in folder.glob("*.py"))
            if count > _MOST_MODULES:
                yield folder, 1, f"{count} modules, more than {_MOST_MODULES}: give them rooms (ADR 20)"


def _first(row: str) -> str:
    return row.split("|")[1]


def _folders(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if (each / "__init__.py").exists()} if folder.is_dir() else set()


def _section(page: Path, heading: str) -> tuple[int, list[str]]:
    """Return the line of a second-level heading, and the lines of its section."""
    lines = page.read_text().splitlines()
    first = lines.index(f"## {heading}")
    end = next((at for at in range(first + 1, len(lines)) if lines[at].startswith("## ")), len(lines))
    return first + 1, lines[first:end]
