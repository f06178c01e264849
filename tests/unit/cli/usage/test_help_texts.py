"""Help texts of all commands, as a terminal of any width shows them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from cyclopts.help.help import docstring_parse

from emberkeep.cli.usage_errors import arguments_of, command_of
from tests.unit.cli.usage.test_usage_errors import ACTIONS, APP, Chain


def help_texts(chain: Chain) -> Iterator[str]:
    parsed = docstring_parse(command_of(APP, chain).help, "plaintext")
    yield parsed.short_description or ""
    yield parsed.long_description or ""
    yield from (argument.parameter.help or "" for argument in arguments_of(APP, chain))


@pytest.mark.parametrize("chain", ACTIONS, ids=" ".join)
def test_lines_of_a_help_text_end_with_a_sentence(chain: Chain) -> None:
    """A terminal shows each line as a paragraph, so that one that ends within a sentence leaves a gap."""
    lines = [pair for text in help_texts(chain) for pair in pairwise(text.split("\n"))]
    broken = [line for line, following in lines if line.strip() and following.strip() and not _ends_sentence(line)]
    assert not broken


def _ends_sentence(line: str) -> bool:
    return line.rstrip().endswith((".", ":", ")"))
