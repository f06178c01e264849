"""``--watch``: what has changed is shown, a lost connection heals, and Ctrl-C ends it with the terminal as it was."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import yaml

from emberkeep.cli.application import main
from emberkeep.cli.views import repetition
from emberkeep.jobs.model import JobStatus
from tests.unit.client.fake_job_manager import FakeJobManager, job_info

A, B = "a1" + "0" * 30, "b2" + "0" * 30
DEADLINE = 20.0
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "INTERVAL", 0.01)


def reads(fake: FakeJobManager) -> int:
    return fake.requests.count("GET /v1/jobs/overview")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def watching(words: list[str], steps: Callable[[], None]) -> int:
    """Run the command in this thread while ``steps`` run in another; these end it as Ctrl-C does."""

    def act() -> None:
        try:
            steps()
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    acting = threading.Thread(target=act)
    acting.start()
    try:
        return main(words)
    finally:
        acting.join()


def test_only_what_has_changed_is_printed_again(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs[A] = job_info(A)

    def steps() -> None:
        seen = reads(fake)
        wait_for(lambda: reads(fake) >= seen + 3)
        fake.jobs[A] = job_info(A, state=JobStatus.FINISHED)
        seen = reads(fake)
        wait_for(lambda: reads(fake) >= seen + 3)

    assert watching(["list", "-w"], steps) == 0
    pictures = capfd.readouterr().out.split("\n\n")
    assert [("RUNNING" in each, "FINISHED" in each) for each in pictures] == [(True, False), (False, True)]


@pytest.mark.parametrize(("form", "separator"), [("json", "\n]\n"), ("yaml", "---\n")])
def test_programs_get_a_document_for_each_change(
    fake: FakeJobManager, capfd: Output, form: str, separator: str
) -> None:
    def steps() -> None:
        for job_id in (A, B):
            fake.jobs[job_id] = job_info(job_id)
            seen = reads(fake)
            wait_for(lambda seen=seen: reads(fake) >= seen + 3)  # type: ignore[misc]

    fake.jobs[A] = job_info(A)
    assert watching(["list", "--watch", "-o", form], steps) == 0
    out = capfd.readouterr().out
    if form == "yaml":
        documents = list(yaml.safe_load_all(out))
    else:
        documents = [json.loads(part + "\n]") for part in out.split(separator) if part]
    assert [len(document) for document in documents] == [1, 2]


def test_a_lost_connection_is_told_once_and_heals(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberkeep.client.http_calls._LONGEST_PAUSE", 0.01)
    monkeypatch.setattr("emberkeep.client.rest_client.RestClient.__init__.__kwdefaults__", {"patience": 0.0})
    fake.jobs[A] = job_info(A)

    def steps() -> None:
        wait_for(lambda: reads(fake) >= 2)
        fake.failures = [503] * 6
        wait_for(lambda: not fake.failures)
        fake.jobs[B] = job_info(B)
        seen = reads(fake)
        wait_for(lambda: reads(fake) >= seen + 3)

    assert watching(["list", "-w"], steps) == 0
    out, err = capfd.readouterr()
    assert B[:8] in out
    assert err.count("told to fail") == 1


def test_an_error_that_stays_ends_it(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["info", "none", "-w"]) == 4
    assert "there is no job" in capfd.readouterr().err
    assert fake.jobs == {}


@pytest.mark.parametrize("words", [["list", "-w"], ["top"]], ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_restores_the_terminal(
    fake: FakeJobManager, words: list[str], number: signal.Signals
) -> None:
    fake.jobs[A] = job_info(A)
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "emberkeep.cli.main", *words]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    written = b""

    def read_until(condition: Callable[[], bool]) -> None:
        nonlocal written
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, written
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    written += os.read(leader, 65536)
                except OSError:  # the terminal has closed
                    return

    try:
        read_until(lambda: A[:8].encode() in written)
        assert b"\x1b[?1049h" in written
        assert b"\x1b[?25l" in written
        process.send_signal(number)
        read_until(lambda: process.poll() is not None)
        read_until(lambda: b"\x1b[?1049l" in written)
        assert process.wait(DEADLINE) == 0
        assert b"\x1b[?25h" in written[written.rindex(b"\x1b[?25l") :]
    finally:
        process.kill()
        process.wait()
        os.close(leader)
