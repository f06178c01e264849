"""Wrapping changes where lines end, and nothing that a reader of the rendered page sees."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tools.wrap_docs import ROOT, WIDTH, pages, wrap

FULL = "a word is a word, and there are enough of them here for a line or so of a page that, alas, has a"
WORDS = f"{FULL} hundred columns"


def rendered(text: str) -> str:
    return re.sub(r"\s+", " ", MarkdownIt("commonmark").enable("table").render(text))


def code(text: str) -> list[str]:
    parsed = MarkdownIt("commonmark").parse(text)
    return [token.content for token in parsed if token.type in ("fence", "code_block", "html_block")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORDS, [FULL, "hundred columns"]),
        (f"- {WORDS}", [f"- {FULL}", "  hundred columns"]),
        (f"1. {WORDS}\n   more", [f"1. {FULL}", "   hundred columns more"]),
        (f"> {WORDS}", [f"> {FULL}", "> hundred columns"]),
        (f"> - {WORDS}", [f"> - {FULL}", ">   hundred columns"]),
    ],
)
def test_paragraphs_are_filled_below_their_first_word(text: str, expected: list[str]) -> None:
    assert wrap(text).split("\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        f"short\nlines\n\n# {WORDS}",
        f"```\n{WORDS}\n```",
        f"    {WORDS}",
        f"| a | b |\n|---|---|\n| {WORDS} | {WORDS} |",
        f"[{WORDS}](page.md)",
        f"`{WORDS}`",
        f"{WORDS}  \nafter a line end that is meant",
        f"<!-- {WORDS} -->",
        f"` {WORDS}  ` {WORDS}",
        f"```{WORDS} `",  # a fence, if the last character were on a line of its own
    ],
)
def test_what_cannot_be_wrapped_stays(text: str) -> None:
    assert wrap(text) == text


def test_links_and_code_stay_on_one_line() -> None:
    text = f"{WORDS[:90]} [a link of several words](page.md#there) and `some code` {WORDS}"
    lines = wrap(text).split("\n")
    assert any("[a link of several words](page.md#there)" in line for line in lines)
    assert any("`some code`" in line for line in lines)


@pytest.mark.parametrize("mark", ["-", "+", "*", "1.", "2)", "#", ">", "|", "===", "---", "```", "<div>"])
def test_no_line_begins_with_what_begins_another_block(mark: str) -> None:
    for words in range(60, 106):
        text = f"{'x ' * (words // 2)}{mark} {WORDS}"
        assert rendered(wrap(text)) == rendered(text)


@given(st.lists(st.text("ab`*_#->|[]()1.= \n", min_size=1, max_size=120), min_size=1, max_size=8))
def test_any_page_looks_the_same_and_is_wrapped_once(pieces: list[str]) -> None:
    text = f"{WORDS} ".join(pieces)
    wrapped = wrap(text)
    assert rendered(wrapped) == rendered(text)
    assert wrap(wrapped) == wrapped


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_projects_pages_look_the_same(page: Path) -> None:
    text = page.read_text()
    wrapped = wrap(text)
    assert rendered(wrapped) == rendered(text)
    assert code(wrapped) == code(text)
    assert WIDTH == 100
