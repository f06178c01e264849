"""``emberkeep logs -f`` of a daemon, while another daemon with another log takes its place."""

from __future__ import annotations

import threading
import time

import pytest

from emberkeep.cli.application import main
from emberkeep.cli.jobs import log_search
from emberkeep.cli.jobs import logs as job_logs
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog

Output = pytest.CaptureFixture[str]

OLD = "26/01/31 18:00:00 WARN A: the old leader starts\n"
LAST = "26/01/31 18:00:09 WARN A: the old leader ends\n"
NEW = "".join(f"26/01/31 17:00:{second:02} WARN A: the new leader works\n" for second in range(30))
NOTICE = "another log follows from its start"


def log(text: str, *, complete: bool = False) -> FakeLog:
    return FakeLog(0, "jobmanager", text.encode(), name="jobmanager.log", complete=complete)


class Takeover(threading.Thread):
    """Puts ``text`` in the place of the JobManager's log once a client has read that log to its end."""

    def __init__(self, fake: FakeJobManager, text: str) -> None:
        super().__init__()
        self._fake = fake
        self._text = text

    def run(self) -> None:
        deadline = time.monotonic() + 30
        while len(self._fake.requests) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        self._fake.daemon_logs[""] = [log(self._text, complete=True)]


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (job_logs, log_search):
        monkeypatch.setattr(module, "FOLLOW_SECONDS", 0.05)


@pytest.mark.parametrize("words", [[], ["--level", "warn"]])
def test_the_log_of_a_new_leader_is_printed_from_its_start(
    fake: FakeJobManager, capfd: Output, words: list[str]
) -> None:
    fake.daemon_logs[""] = [log(OLD)]
    takeover = Takeover(fake, NEW)
    takeover.start()
    assert main(["logs", "--jobmanager", "-f", *words]) == 0
    takeover.join()
    captured = capfd.readouterr()
    assert captured.out == OLD + NEW
    assert captured.err.count(NOTICE) == 1


@pytest.mark.parametrize("words", [[], ["--level", "warn"]])
def test_a_log_that_stays_is_not_printed_again(fake: FakeJobManager, capfd: Output, words: list[str]) -> None:
    fake.daemon_logs[""] = [log(OLD)]
    takeover = Takeover(fake, OLD + LAST + NEW)  # the daemon has started again, with the same file
    takeover.start()
    assert main(["logs", "--jobmanager", "-f", *words]) == 0
    takeover.join()
    captured = capfd.readouterr()
    assert captured.out == OLD + LAST + NEW
    assert NOTICE not in captured.err
