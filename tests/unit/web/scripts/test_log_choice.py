"""What the page of a log selects, run by Node.js where it is installed: browsers run the same module."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.unit.web.conftest import JavaScript

LOGS = [
    {"attempt": attempt, "executor-id": executor, "kind": f"{'executor' if executor else 'driver'}-{stream}"}
    for attempt in (1, 2)
    for executor in ("", "10", "9")
    for stream in ("stdout", "stderr")
    if (attempt, executor) != (2, "9")
]


@pytest.fixture
def evaluated(javascript: JavaScript) -> Callable[[str], Any]:
    """Returns the value of a JavaScript expression, which may use ``log`` (the module) and ``logs``."""
    return partial(javascript, ["log_choice"], before=f"const log = log_choice, logs = {json.dumps(LOGS)};")


def test_an_address_holds_the_whole_choice(evaluated: Any) -> None:
    choice = {"text": "a&b=ö %", "level": "warn", "follow": False, "attempt": 2, "stdout": True}

    address = evaluated(f'log.addressOf("/jobs/1/logs", {json.dumps(choice)}, true)')
    assert address.startswith("/jobs/1/logs?")
    assert evaluated(f"log.choiceOf({json.dumps(address.partition('?')[2])})") == choice
    alone = evaluated(f'log.addressOf("/jobs/1/logs/x", {json.dumps({**choice, "text": ""})}, false)')
    assert alone == "/jobs/1/logs/x?level=warn&follow=no"
    assert evaluated('log.addressOf("/x", log.choiceOf(""), true)') == "/x"
    assert evaluated('log.choiceOf("level=loud&attempt=-1&stdout=1&text=" + "x".repeat(500))') == {
        "text": "x" * 200,
        "level": "",
        "follow": True,
        "attempt": 0,
        "stdout": False,
    }


def test_attempts_and_processes_are_listed_in_their_order(evaluated: Any) -> None:
    assert evaluated("log.attemptsOf(logs)") == [2, 1]
    assert evaluated("log.processesOf(logs, 1)") == [
        {"value": "", "text": "driver"},
        {"value": "9", "text": "executor 9"},
        {"value": "10", "text": "executor 10"},
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((1, "9", "stderr"), (1, "9", "executor-stderr")),
        ((2, "10", "stdout"), (2, "10", "executor-stdout")),
        ((2, "9", "stderr"), (2, "", "driver-stderr")),
    ],
)
def test_a_switch_keeps_what_it_can(evaluated: Any, wanted: tuple[Any, ...], found: tuple[Any, ...]) -> None:
    log = evaluated(f"log.nearest(logs, {', '.join(map(json.dumps, wanted))})")

    assert (log["attempt"], log["executor-id"], log["kind"]) == found
    assert evaluated('log.nearest(logs, 7, "", "stdout")') is None


@pytest.mark.parametrize(
    ("shown", "texts"),
    [(1, ["2", "1"]), (2, ["2", "1"]), (3, ["3 (no logs)", "2", "1"]), (0, ["2", "1", "0 (no logs)"])],
)
def test_the_attempt_that_is_shown_is_in_the_list(evaluated: Any, shown: int, texts: list[str]) -> None:
    """Its logs may be deleted, or not there yet."""
    offered = evaluated(f"log.attemptsToOffer(logs, {shown})")
    assert [entry["text"] for entry in offered] == texts
    assert shown in [entry["value"] for entry in offered]


def test_what_was_searched_for_is_marked_in_any_case(evaluated: Any) -> None:
    assert evaluated('log.marked("An error, ERROR", "Error")') == ["An ", "error", ", ", "ERROR", ""]
    assert evaluated('log.marked("nothing", "x")') == ["nothing"]
    assert evaluated('log.marked("all", "")') == ["all"]
    assert evaluated('log.marked("İ error", "error")') == ["İ error"]  # whose lower case is longer


def test_colours_of_terminals_are_left_out(evaluated: Any) -> None:
    assert evaluated(r'log.plain("\x1b[31mred\x1b[0m \x1b]0;title\x07end")') == "red end"


def test_a_page_holds_a_bounded_number_of_records(evaluated: Any) -> None:
    assert evaluated("log.surplus([5, 5, 5], 10, false)") == 1
    assert evaluated("log.surplus([5, 5, 1], 10, true)") == 1
    assert evaluated("log.surplus([1, 5, 5], 6, true)") == 1
    assert evaluated("log.surplus([50], 10, true)") == 0
    assert evaluated("log.surplus([1, 2], 10, true)") == 0
