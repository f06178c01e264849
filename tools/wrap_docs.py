"""Wraps the documentation at 100 columns: `python -m tools.wrap_docs` rewrites pages that have longer lines.

Only paragraphs that have such a line change, and only in where their lines end: the rendered page stays the same.
Tables, code blocks and headings stay as they are. A link or a code span stays on one line, however long it is, so that
people can search for it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

# Not .github: the hosting service shows each line end of a template as one.
_PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md")
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_ATOM = re.compile(r"(?:!?\[[^\]]*\]\([^)]*\)|(?<!`)`[^`]+`(?!`)|\S)+")
_SPACED_CODE = re.compile(r"`[^`]*\s\s[^`]*`")  # spaces in code count
# What begins a block of another kind, or could, at the beginning of a line.
_BLOCK = re.compile(r"[-+*]$|\d+[.)]$|#+$|=+$|-+$|\*{3,}$|_{3,}$|~~~|```|[>|]|<[a-zA-Z/!?]")


@dataclass(frozen=True)
class Paragraph:
    """The lines `first` to `end` (from 0, `end` excluded) of a page, and what they should be."""

    first: int
    end: int
    wrapped: list[str]


def pages(root: Path) -> list[Path]:
    """Return the pages that this module wraps."""
    return sorted(path for pattern in _PAGES for path in root.glob(pattern))


def wrap(text: str) -> str:
    """Return a page with its long paragraphs wrapped."""
    lines = text.split("\n")
    for paragraph in reversed(list(long_paragraphs(text))):
        lines[paragraph.first : paragraph.end] = paragraph.wrapped
    return "\n".join(lines)


def long_paragraphs(text: str) -> Iterator[Paragraph]:
    """Find the paragraphs that have a line over `WIDTH` columns and can be wrapped."""
    lines = text.split("\n")
    tokens = _MARKDOWN.parse(text)
    for opening, token in pairwise(tokens):
        if opening.type != "paragraph_open" or token.map is None:
            continue
        first, end = token.map
        present = lines[first:end]
        if max(map(len, present)) <= WIDTH or "  \n" in token.content or "\\\n" in token.content:
            continue
        if _SPACED_CODE.search(token.content):
            continue
        before = present[0].find(token.content.partition("\n")[0])
        wrapped = _fill(token.content, present[0][:before])
        if before >= 0 and wrapped != present and _rendered(wrapped) == _rendered(present):
            yield Paragraph(first, end, wrapped)


def _rendered(lines: list[str]) -> str:
    """Return what readers see of some lines. A line may begin a block for reasons that lie further on in it."""
    return re.sub(r"\s+", " ", _MARKDOWN.render("\n".join(lines)))


def _fill(content: str, before: str) -> list[str]:
    """Return the lines of a paragraph: the first one after `before`, a list's marker or nothing, the others below."""
    below = re.sub(r"[^>]", " ", before)
    first, *others = _atoms(content)
    lines = [before + first]
    for atom in others:
        if len(lines[-1]) + 1 + len(atom) <= WIDTH:
            lines[-1] += f" {atom}"
        else:
            lines.append(below + atom)
    return lines


def _atoms(content: str) -> list[str]:
    """Split a paragraph where a line may end."""
    atoms: list[str] = []
    for atom in _ATOM.findall(re.sub(r"\s+", " ", content)):
        if atoms and _BLOCK.match(atom):
            atoms[-1] += f" {atom}"
        else:
            atoms.append(atom)
    return atoms


def main() -> None:
    """Wrap the project's pages."""
    for page in pages(ROOT):
        text = page.read_text()
        if (wrapped := wrap(text)) != text:
            page.write_text(wrapped)
            print(f"{page.relative_to(ROOT)} wrapped")


if __name__ == "__main__":
    main()
