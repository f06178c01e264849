"""What jobs and servers say cannot control the terminal on which it is printed."""

from __future__ import annotations

import json

import pytest

from emberkeep.base.inert_text import inert
from emberkeep.cli.messages import print_line, say_error
from emberkeep.cli.tables import OutputFormat, print_data, print_fields, print_table

HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\rd\u202ee\x7f"
SHOWN = r"a\x1b]0;title\x07b\x9b2Jc\x0dd\u202ee\x7f"

pytestmark = pytest.mark.req("SEC-17")


def test_control_characters_are_shown_and_layout_stays() -> None:
    assert inert(HOSTILE) == SHOWN
    assert inert("ä\tb\nc → 漢字 🔥") == "ä\tb\nc → 漢字 🔥"


def test_results_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE)
    print_fields([("Cause", f"{HOSTILE}\n{HOSTILE}")])
    print_table(["CAUSE"], [[HOSTILE]])

    printed = capsys.readouterr().out
    assert printed.count(SHOWN) == 4
    assert not set(printed) & set("\x1b\x07\x9b\r\u202e\x7f")


def test_json_is_inert_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_data({HOSTILE: [f"{HOSTILE}\n"]}, OutputFormat.JSON)

    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\r\u202e\x7f")
    assert json.loads(printed) == {HOSTILE: [f"{HOSTILE}\n"]}


def test_messages_are_inert(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(HOSTILE, HOSTILE)

    assert capsys.readouterr().err == f"emberkeep: {SHOWN}\n  hint: {SHOWN}\n"
