"""Holds the documentation to the project: `python -m tools.check_docs` prints each problem and exits 1 if there is one.

Checked: relative links and their anchors lead somewhere; `make` targets that code blocks name exist; every decision
record is listed; generated references are current; paragraphs are wrapped at 100 columns; no file names a path of the
machine it was written on; facts about the code are true (`tools.check_facts`).
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tools import check_facts, wrap_docs

ROOT = Path(__file__).resolve().parent.parent

# Files written by code, or with a part that is: `<module>.render() -> str` is the whole file, wrapped if it is a page.
# `--write` brings them up to date.
GENERATED = {
    "docs/configuration.md": "tools.option_reference",
    "docs/credentials.md": "tools.credential_reference",
    "docs/limits.md": "campaign.floors.figures",
    "docs/metrics.md": "tools.metric_reference",
    "docs/production/ports.md": "tools.port_reference",
    "docs/reliability.md": "campaign.published",
    "docs/rest.md": "tools.rest_reference",
    "docs/states.md": "tools.state_diagrams",
    "src/emberkeep/client/declarations/job.schema.json": "tools.job_schema",
}

_FENCE = re.compile(r"^\s*(```|~~~)")
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
_MAKE = re.compile(r"(?:^|[;&|]\s*|\$\s+)make\s+([^#;&|\n]*)")
_TARGET = re.compile(r"^([a-z][a-z0-9-]*):", re.MULTILINE)
# Written in two parts so that this file is not its own first finding.
_PRIVATE_PATHS = re.compile(r"(?<![\w.-])(/" + r"work/|/" + r"root/|/" + r"home/\w+/|shared/[\w-]+\.md\b)")
# Hashes and binary files cannot name a path; licences quote others.
_NOT_OURS = {".lock", ".png", ".ico", ".svg", ".woff2", ".jar", ".zip"}


@dataclass(frozen=True)
class Problem:
    """Where something is wrong (relative path, line from 1) and what."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def check(root: Path, files: list[Path], generated: dict[str, str]) -> list[Problem]:
    """All problems of `files` (absolute paths below `root`), by path and line."""
    problems = [p for f in files if f.suffix == ".md" for p in (*broken_links(root, f), *unknown_make_targets(root, f))]
    problems += [p for f in files if f.suffix not in _NOT_OURS for p in private_paths(root, f)]
    problems += unlisted_decisions(root)
    problems += stale_references(root, generated)
    problems += long_lines(root)
    problems += misshapen_pages(root)
    problems += [_problem(root, *finding) for finding in _facts(root, files)]
    return sorted(problems, key=lambda p: (p.path, p.line))


def broken_links(root: Path, page: Path) -> Iterator[Problem]:
    """Relative links of a Markdown page whose file, or whose heading in it, does not exist."""
    for number, target in _links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists():
            yield _problem(root, page, number, f"link to {target}: {name} does not exist next to this page")
        elif not linked.is_relative_to(root):
            yield _problem(root, page, number, f"link to {target} leaves the project")
        elif anchor and linked.suffix == ".md" and anchor not in _anchors(linked):
            yield _problem(root, page, number, f"link to {target}: no heading there has the anchor #{anchor}")


def unknown_make_targets(root: Path, page: Path) -> Iterator[Problem]:
    """`make` targets in a page's code blocks that the Makefile does not have."""
    makefile = root / "Makefile"
    targets = set(_TARGET.findall(makefile.read_text())) if makefile.exists() else set()
    for number, line in _code(page):
        for arguments in _MAKE.findall(line):
            for word in arguments.split():
                if re.fullmatch(r"[a-z][a-z0-9-]*", word) and word not in targets:
                    yield _problem(root, page, number, f"`make {word}`: the Makefile has no such target")


def unlisted_decisions(root: Path) -> Iterator[Problem]:
    """Decision records that docs/adr/README.md does not link to."""
    folder = root / "docs" / "adr"
    index = folder / "README.md"
    listed = set(_LINK.findall(index.read_text())) if index.exists() else set()
    for record in sorted(folder.glob("[0-9]*.md")):
        if record.name not in listed:
            yield _problem(root, record, 1, "this decision is not listed in docs/adr/README.md")


def private_paths(root: Path, file: Path) -> Iterator[Problem]:
    """Lines that name a path of one machine."""
    try:
        text = file.read_text()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PRIVATE_PATHS.search(line):
            yield _problem(root, file, number, f"{found.group(0)!r} is a path that exists on one machine only")


def stale_references(root: Path, generated: dict[str, str]) -> Iterator[Problem]:
    """Generated pages that differ from what their generator writes now."""
    for path, module in generated.items():
        page = root / path
        if not page.exists() or page.read_text() != _render(path, module):
            yield Problem(path, 1, f"differs from what {module} writes: run `python -m tools.check_docs --write`")


def long_lines(root: Path) -> Iterator[Problem]:
    """Paragraphs with lines over 100 columns that can be wrapped."""
    for page in wrap_docs.pages(root):
        for paragraph in wrap_docs.long_paragraphs(page.read_text()):
            what = f"this paragraph has a line over {wrap_docs.WIDTH} columns: `make format` wraps it"
            yield _problem(root, page, paragraph.first + 1, what)


def misshapen_pages(root: Path) -> Iterator[Problem]:
    """Pages that do not open with an example, or do not end with what to read next."""
    for page in sorted((root / "docs").glob("*.md")):
        sections = [number for number, line in _prose(page) if line.startswith("## ")]
        example = min((number for number, _ in _code(page)), default=None)
        if example is None or (sections and example > sections[0]):
            yield _problem(root, page, 1, "no example in a code block stands before the first section")
        if not sections or page.read_text().splitlines()[sections[-1] - 1] != "## Read next":
            yield _problem(root, page, sections[-1] if sections else 1, "the last section is not `## Read next`")


def _facts(root: Path, files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    yield from (finding for file in files if file.suffix == ".md" for finding in check_facts.source_files(root, file))
    yield from check_facts.full_folders(root)
    if (page := root / "docs" / "requirements.md").exists():
        yield from check_facts.requirements(page, files)
    if (page := root / "docs" / "architecture.md").exists():
        yield from check_facts.messages(page)
        yield from check_facts.packages(root, page)


def write_references(root: Path, generated: dict[str, str]) -> None:
    """Write every generated page."""
    for path, module in generated.items():
        page = root / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_render(path, module))


def _render(path: str, module: str) -> str:
    text = cast(Callable[[], str], importlib.import_module(module).render)()
    return wrap_docs.wrap(text) if path.endswith(".md") else text


def _problem(root: Path, file: Path, line: int, what: str) -> Problem:
    return Problem(str(file.relative_to(root)), line, what)


def _lines(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Line number, line, and whether it stands in a fenced code block (the fences themselves are left out)."""
    fence = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = mark.group(1) if fence is None else None
        else:
            yield number, line, fence is not None


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line, code in _lines(page) if not code)


def _links(page: Path) -> Iterator[tuple[int, str]]:
    """Targets of links with the line of each; a link's text may go over the end of a line, code is no link."""
    prose = dict(_prose(page))
    text = "\n".join(prose.get(number, "") for number in range(1, max(prose, default=0) + 1))
    text = re.sub(r"`(?:[^`\n]|\n(?!\s*\n))*`", lambda code: re.sub(r"[^\n]", " ", code.group()), text)
    return ((text.count("\n", 0, link.start()) + 1, link.group(1)) for link in _LINK.finditer(text))


def _code(page: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line, code in _lines(page) if code)


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page, the n-th namesake with -n behind it."""
    anchors: set[str] = set()
    for _, line in _prose(page):
        if heading := _HEADING.match(line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            namesakes = sum(
                1 for known in anchors if known == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", known)
            )
            anchors.add(f"{anchor}-{namesakes}" if namesakes else anchor)
    return anchors


def _project_files(root: Path) -> list[Path]:
    """Files that are, or would be, in version control."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def main(arguments: list[str]) -> int:
    """Check, or with `--write` bring the generated pages up to date first."""
    if arguments not in ([], ["--write"]):
        print("usage: python -m tools.check_docs [--write]", file=sys.stderr)
        return 2
    if arguments:
        write_references(ROOT, GENERATED)
    files = _project_files(ROOT)
    problems = check(ROOT, files, GENERATED)
    for problem in problems:
        print(problem)
    print(f"documentation: {len(problems)} problems" if problems else f"documentation: {len(files)} files in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
