"""Tables of commands, on terminals of any width."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console, RenderableType

from emberkeep.cli.operators.top_view import TopPicture, render
from emberkeep.cli.tables import FittedTable, fitted
from emberkeep.cli.wording import LESS_OF_JOBS, job_table
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import AlarmInfo
from emberkeep.watchdog.model import AlarmKind
from tests.unit.client.fake_job_manager import job_info, job_summary, task_manager_info

WHY = "2 of 2 slots (1 core and 896 MiB each) are missing: all 4 slots are taken"
WAITS = job_info("ab12cd34" + "0" * 24, "nightly report", JobStatus.CREATED, waiting=WHY, executors_wanted=2)
ALARM = AlarmInfo(kind=AlarmKind.NO_COMMIT, query="counts", since=0, message="no micro-batch was committed for 301 s")


def shown(renderable: RenderableType, width: int) -> list[str]:
    """The lines on a terminal of this width."""
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(renderable)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines)
    return lines


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_on_a_narrow_terminal_ids_and_reasons_stay_whole() -> None:
    columns, rows = job_table([job_summary(WAITS)])
    head, *lines = shown(FittedTable(columns, rows, LESS_OF_JOBS), 80)
    assert head.split() == ["JOB", "ID", "NAME", "STATE", "DURATION", "EXECUTORS", "WAITING", "FOR"]
    assert lines[0].split()[:4] == ["ab12cd34", "nightly", "report", "CREATED"]
    assert "…" not in words(lines)
    reason = " ".join(line[head.index("WAITING FOR") :].strip() for line in lines)
    assert reason == WHY


def test_where_there_is_room_nothing_is_left_out() -> None:
    columns, rows = job_table([job_summary(WAITS)])
    head, *lines = shown(FittedTable(columns, rows, LESS_OF_JOBS), 200)
    assert head.split() == " ".join(columns).split()
    assert len(lines) == 1
    assert lines[0].endswith(WHY)


def test_no_more_is_left_out_than_needed() -> None:
    table = FittedTable(["A", "B", "C"], [["a" * 10, "b" * 10, "c" * 10]], ["B", "A"])
    assert shown(table, 34)[0].split() == ["A", "B", "C"]
    assert shown(table, 33)[0].split() == ["A", "C"]
    assert shown(table, 21)[0].split() == ["C"]


def test_what_cannot_be_left_out_is_shortened() -> None:
    head, line, *_ = shown(FittedTable(["ID", "NAME", "TEXT"], [["1", "n" * 60, "t" * 60]]), 40)
    assert head.split() == ["ID", "NAME", "TEXT"]
    assert line.split()[0] == "1"
    assert line.split()[1].endswith("…")


@pytest.mark.parametrize("width", [30, 200])
def test_tabs_take_room(width: int) -> None:
    _, line = shown(FittedTable(["NAME", "STATE"], [["a\tb", "RUNNING"]]), width)
    assert line.split() == ["a", "b", "RUNNING"]


@pytest.mark.parametrize("width", [1, 5, 20, 80])
def test_it_can_be_shown_anywhere(width: int) -> None:
    assert shown(FittedTable(["ID", "NAME"], [["1", "n" * 60]]), width)
    assert sum(fitted([2, 60, 60], width)) + 4 <= max(width, 7)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_top_says_what_is_wrong_on_any_terminal(width: int) -> None:
    stuck = job_info("ab12cd34" + "0" * 24, "flights", alarms=[ALARM])
    lines = shown(render(TopPicture(None, [task_manager_info("tm-1")], [stuck], more=0)), width)
    row = next(line for line in lines if "flights" in line)
    assert "RUNNING" in row
    said = words([line.replace("flights", "").replace("RUNNING", "") for line in lines])
    assert "ALARM query counts:" in said
    assert "301 s" in said
    assert any(line.startswith("NODE") and "STATE" in line and "SLOTS" in line for line in lines)


JOBS = [job_info(f"{number:02x}" + "0" * 30, f"job {number}") for number in range(1, 31)]
NODES = [task_manager_info(f"tm-{number}") for number in range(1, 41)]


def on_screen(picture: TopPicture, height: int) -> list[str]:
    """The lines of ``emberkeep top`` on the other screen of a terminal of this height."""
    file = io.StringIO()
    console = Console(file=file, width=80, height=height, force_terminal=True, color_system=None, highlight=False)
    console.set_alt_screen(True)
    console.print(render(picture))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_top_shows_jobs_and_nodes_on_a_low_screen() -> None:
    nodes = [*NODES]
    nodes[30] = msgspec.structs.replace(nodes[30], blocked=True)
    lines = on_screen(TopPicture(None, nodes, JOBS, more=7), 24)
    assert len(lines) <= 24
    assert sum("RUNNING" in line for line in lines) >= 8
    first = next(index for index, line in enumerate(lines) if line.startswith("NODE"))
    assert "blocked" in lines[first + 1]
    assert len(lines) - first >= 5


@pytest.mark.parametrize("height", [6, 8, 10, 15, 24, 40, 60, 90])
def test_top_says_how_many_it_does_not_show_on_any_screen(height: int) -> None:
    waits = [job_info(f"ff{number:02x}" + "0" * 28, f"waits {number}", waiting=WHY) for number in range(5)]
    lines = on_screen(TopPicture(None, NODES, [*waits, *JOBS], more=7), height)
    assert len(lines) <= max(height, 6)
    text = "\n".join(lines)
    for shown, count, where in (
        (sum(" RUNNING" in line for line in lines), 35 + 7, "emberkeep list"),
        (sum(" ALIVE" in line for line in lines), 40, "emberkeep taskmanagers list"),
    ):
        told = re.findall(rf"… (\d+) more: `{where}` shows all", text)
        assert shown + sum(map(int, told)) in (count, 0), "all are counted, or there is no line for them"
        assert len(told) <= 1
    assert "… " in text or height > 85


def test_top_counts_the_jobs_that_it_does_not_show_if_there_are_no_task_managers() -> None:
    lines = on_screen(TopPicture(None, [], JOBS, more=0), 15)
    shown = sum(" RUNNING" in line for line in lines)
    assert len(lines) + 3 <= 15, "the title has room"
    assert lines[-1] == f"… {30 - shown} more: `emberkeep list` shows all"
    assert shown >= 7
