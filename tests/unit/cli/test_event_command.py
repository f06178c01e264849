"""``emberkeep events``: what it asks for, and what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.selection import Page, Selection
from emberkeep.cli import event_commands
from emberkeep.cli.application import main
from emberkeep.cli.views import patience
from emberkeep.client.calls.events import EventCalls
from emberkeep.protocol.chronicle.rest_events import EventList
from tests.unit.client.fake_job_manager import FakeJobManager

Output = pytest.CaptureFixture[str]
JOB = "9" * 32


def note(fake: FakeJobManager, message: str, *, what: What = What.STATUS, job_id: str = JOB) -> None:
    fake.chronicle.note(Occurrence(what=what, message=message, job_id=job_id, attempt=2, by="ana"))


def test_events_of_a_job_are_printed_oldest_first_and_inertly(fake: FakeJobManager, capfd: Output) -> None:
    for text in ("one", "two", "\x1b[2Jevil"):
        note(fake, text)
    assert main(["events", JOB]) == 0
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split() == ["TIME", "TYPE", "ATTEMPT", "BY", "EVENT"]
    assert rows[0].split() == ["2026-11-18", "11:06:40Z", "status", "2", "ana", "one"]
    assert r"\x1b[2Jevil" in rows[2]


def test_without_a_job_the_cluster_s_events_are_shown(fake: FakeJobManager, capfd: Output) -> None:
    note(fake, "of the job")
    note(fake, "leads", what=What.LEADER_STARTED, job_id="")
    assert main(["events"]) == 0
    assert [row.split()[-1] for row in capfd.readouterr().out.splitlines()[1:]] == ["leads"]


def test_json_has_one_event_on_each_line_from_all_pages_up_to_the_limit(fake: FakeJobManager, capfd: Output) -> None:
    for number in range(9):
        note(fake, str(number))
    assert main(["events", JOB, "-o", "json", "--limit", "5"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["message"] for line in lines] == ["4", "5", "6", "7", "8"]


def test_events_are_a_list_in_yaml(fake: FakeJobManager, capfd: Output) -> None:
    note(fake, "one")
    note(fake, "two")
    assert main(["events", JOB, "-o", "yaml"]) == 0
    assert [each["message"] for each in yaml.safe_load(capfd.readouterr().out)] == ["one", "two"]


def test_types_and_times_select(fake: FakeJobManager, capfd: Output) -> None:
    note(fake, "state")
    note(fake, "saved", what=What.SAVEPOINT)
    note(fake, "failed", what=What.EXCEPTION)
    assert main(["events", JOB, "--type", "savepoint", "--type", "exception", "-o", "json"]) == 0
    assert [json.loads(line)["message"] for line in capfd.readouterr().out.splitlines()] == ["saved", "failed"]
    assert main(["events", JOB, "--since", "2030-01-01"]) == 0
    assert "no such events" in capfd.readouterr().err


@pytest.mark.usefixtures("fake")
def test_wrong_options_are_explained(capfd: Output) -> None:
    assert main(["events", "--since", "yesterday"]) != 0
    assert "for example 2h" in capfd.readouterr().err
    assert main(["events", "--limit", "0"]) != 0
    assert "--limit 0" in capfd.readouterr().err


def test_follow_shows_what_is_added_once(fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_commands, "_POLL_SECONDS", 0.01)
    note(fake, "before")
    read, polls = fake.chronicle.read, 0

    async def reading(job_id: str, selection: Selection) -> Page:
        nonlocal polls
        if selection.after is not None:
            polls += 1
            note(fake, f"poll {polls}")
            if polls == 4:
                raise Conflict("enough")
        return await read(job_id, selection)

    monkeypatch.setattr(fake.chronicle, "read", reading)
    assert main(["events", JOB, "-f", "-o", "json"]) != 0
    captured = capfd.readouterr()
    shown = [json.loads(line)["message"] for line in captured.out.splitlines()]
    assert shown == ["before", "poll 1", "poll 2", "poll 3"]
    assert "enough" in captured.err


def test_follow_keeps_the_times_that_select(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_commands, "_POLL_SECONDS", 0.01)
    note(fake, "long ago")
    read, polls = fake.chronicle.read, 0

    async def reading(job_id: str, selection: Selection) -> Page:
        nonlocal polls
        polls += selection.after is not None
        if polls == 3:
            raise Conflict("enough")
        return await read(job_id, selection)

    monkeypatch.setattr(fake.chronicle, "read", reading)
    assert main(["events", JOB, "-f", "--since", "2030-01-01", "-o", "json"]) != 0
    assert capfd.readouterr().out == ""


def test_follow_goes_on_although_the_leader_changes(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_commands, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(patience, "_PAUSE", 0.01)
    note(fake, "before")
    after, polls = EventCalls.after, 0

    async def polled(self: EventCalls, *arguments: Any) -> EventList:
        nonlocal polls
        polls += 1
        if polls <= 20:
            raise RetryLater("an election is under way")
        if polls == 22:
            raise Conflict("enough")
        note(fake, "after")
        return await after(self, *arguments)

    monkeypatch.setattr(EventCalls, "after", polled)
    assert main(["events", JOB, "-f", "-o", "json"]) == 1
    captured = capfd.readouterr()
    assert [json.loads(line)["message"] for line in captured.out.splitlines()] == ["before", "after"]
    assert captured.err.count("an election is under way; still waiting") == 1
    assert "enough" in captured.err
