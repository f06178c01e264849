"""``emberkeep audit``: what it asks for, and what it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.cli import audit_commands
from emberkeep.cli.application import main
from emberkeep.cli.views import patience
from emberkeep.protocol.rest_audit import AuditEntry
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager

pytestmark = pytest.mark.req("SEC-15")

Output = pytest.CaptureFixture[str]
JOB = "9" * 32
NOW_MS = 1_795_000_000_000


def entry(number: int, *, identity: str = "alice", outcome: str = "done", count: int = 1) -> AuditEntry:
    return AuditEntry(
        version=1,
        time="2026-11-18T11:06:40.000Z",
        id=f"{NOW_MS + number:013d}-000000",
        identity=identity,
        role="operator",
        login="token",
        address="10.0.0.5",
        action="PATCH /v1/jobs/{jobid}",
        target={"jobid": JOB},
        parameters={},
        status=202,
        outcome=outcome,
        reason="\x1b[2Jevil" if outcome == "failed" else "",
        count=count,
    )


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


def test_entries_are_printed_oldest_first_and_inertly(fake: FakeJobManager, capfd: Output) -> None:
    fake.audit = [entry(3, outcome="failed"), entry(2, outcome="refused", count=40), entry(1)]
    assert main(["audit"]) == 0
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split() == ["TIME", "IDENTITY", "FROM", "ACTION", "TARGET", "OUTCOME"]
    assert ["done 202" in rows[0], "40 ×" in rows[1], r"\x1b[2Jevil" in rows[2]] == [True] * 3
    assert "10.0.0.5 (token)" in rows[0]
    assert f"jobid={JOB}" in rows[0]


def test_json_has_one_entry_on_each_line(fake: FakeJobManager, capfd: Output) -> None:
    fake.audit = [entry(2), entry(1)]
    assert main(["audit", "-o", "json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [entry(1).id, entry(2).id]


def test_all_pages_are_read_up_to_the_limit(fake: FakeJobManager, capfd: Output) -> None:
    fake.audit = [entry(number) for number in range(30, 0, -1)]
    assert main(["audit", "-o", "json", "--limit", "25"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 25


def test_options_become_query_parameters(fake: FakeJobManager) -> None:
    words = ["--since", "2026-01-31T18:00", "--identity", "bob", "--job", JOB, "--outcome", "refused"]
    assert main(["audit", *words]) == 0
    since = round(datetime(2026, 1, 31, 18, 0).astimezone().timestamp() * 1000)
    asked = fake.audit_queries[-1]
    assert (asked["since"], asked["identity"], asked["jobid"], asked["outcome"]) == (
        str(since),
        "bob",
        JOB,
        "refused",
    )


@pytest.mark.usefixtures("fake")
def test_an_empty_log_and_a_wrong_time_are_told(capfd: Output) -> None:
    assert main(["audit", "--since", "2h"]) == 0
    assert "no such entries" in capfd.readouterr().err
    assert main(["audit", "--since", "yesterday"]) != 0
    assert "for example 2h" in capfd.readouterr().err
    assert main(["audit", "--limit", "0"]) != 0


def test_follow_goes_on_although_the_leader_changes(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_commands, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(patience, "_PAUSE", 0.01)
    away = RetryLater("an election is under way")
    answers: Iterator[list[AuditEntry] | EmberkeepError] = iter(
        [[entry(1)], away, away, [entry(1), entry(2)], [entry(2)], Conflict("enough")]
    )

    async def newest(*_: object) -> list[AuditEntry]:
        answer = next(answers)
        if isinstance(answer, EmberkeepError):
            raise answer
        return answer

    monkeypatch.setattr(audit_commands, "_newest", newest)
    assert main(["audit", "-f", "-o", "json"]) == 1
    out, err = capfd.readouterr()
    assert [json.loads(line)["id"] for line in out.splitlines()] == [entry(1).id, entry(2).id]
    assert err.count("an election is under way; still waiting") == 1
    assert "enough" in err
