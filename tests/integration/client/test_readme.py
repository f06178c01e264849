"""The README's five minutes: each command in it is run, in order, as a reader runs it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster
from tests.integration.commands import Ended, Shell
from tests.integration.conditions import DEADLINE, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
SECTION = re.compile(r"^## Five minutes\n(.*?)^## ", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"`(?P<name>\w+\.py)`:\n\n```python\n(?P<text>.*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
BATCHES = 2


class Tour:
    """A reader. ``steps`` has a method for the beginning of each command; an unknown command fails the test."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        self._cluster = cluster
        self._shell = cluster.shell
        self._text = text
        self._place = str(self._shell.work / "moving")
        self._savepoint = ""
        self.steps: dict[str, Callable[[list[str]], None]] = {
            "emberkeep run count.py": self._run_script,
            "emberkeep cluster up": self._up,
            "python examples/moving/feed.py": self._feed,
            "emberkeep submit --name stations": self._submit,
            "emberkeep info stations": self._info,
            "kill -9": self._kill_driver,
            "emberkeep stop stations": self._stop,
            "emberkeep run --from-savepoint PATH": self._run_from_savepoint,
            "emberkeep cluster down": self._down,
        }

    def follow(self) -> list[str]:
        """Run all commands of the tour; return their keys in order."""
        (script,) = SCRIPT.finditer(self._text)
        self._shell.write(script["name"], script["text"])
        (self._shell.work / "examples").symlink_to(ROOT / "examples")
        done: list[str] = []
        for block in CONSOLE.findall(self._text):
            for line in block.splitlines():
                if line.startswith("$ "):
                    done.append(self._do(line.removeprefix("$ ")))
        return done

    def _do(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        key = next((key for key in self.steps if command.startswith(key)), "")
        assert key, f"the README has a command that this test does not run: {command}"
        self.steps[key]([word.replace("/tmp/moving", self._place) for word in words[1:]])
        return key

    def _run_script(self, words: list[str]) -> None:
        ended = self._shell.done(*words)
        assert ended.out == "499999500000\n", ended
        assert ended.out in self._text, "the README shows what the script prints"

    def _up(self, words: list[str]) -> None:
        self._cluster.up(*words[2:], "-D", "rest.port=0")

    def _feed(self, words: list[str]) -> None:
        subprocess.run([sys.executable, *words], cwd=self._shell.work, check=True, timeout=DEADLINE)

    def _submit(self, words: list[str]) -> None:
        self._shell.done(*words)

    def _job_id(self) -> JobId:
        (job,) = [
            job
            for job in self._cluster.ask(lambda client: client.jobs())
            if job.name == "stations" and not job.state.is_globally_terminal
        ]
        return job.jid

    def _info(self, words: list[str]) -> None:
        expected = "Attempt:           2" if self._killed else "Attempt:           1"

        def shown() -> Ended | None:
            ended = self._shell.done(*words)
            lines = {line.strip() for line in ended.out.splitlines()}
            ready = {"State:             RUNNING", expected, "Executors:         2 of 2 registered"} <= lines
            return ended if ready else None

        until(shown, lambda: f"the job runs as the README shows: {self._shell.run(*words)}")
        job_id = self._job_id()
        self._cluster.wait_for(
            job_id, lambda job: any(query.batch_id >= BATCHES for query in job.emberkeep.queries), "batches commit"
        )

    @property
    def _killed(self) -> bool:
        return self._cluster.job(self._job_id()).emberkeep.attempt > 1

    def _kill_driver(self, words: list[str]) -> None:
        assert words[0] == "-9"
        os.kill(self._cluster.wait_for_driver(self._job_id()), signal.SIGKILL)
        self._cluster.wait_for_driver(self._job_id(), attempt=2)

    def _stop(self, words: list[str]) -> None:
        ended = self._shell.done(*words)
        found = re.search(r"\S+/savepoint-[\w-]+", ended.out + ended.err)
        assert found, ended
        self._savepoint = found.group()

    def _run_from_savepoint(self, words: list[str]) -> None:
        words = [self._savepoint if word == "PATH" else word for word in words]
        run = self._shell.start(*words)

        def again() -> bool:
            jobs = self._cluster.ask(lambda client: client.jobs())
            return any(job.state is JobStatus.RUNNING for job in jobs) or run.process.poll() is not None

        until(again, lambda: f"the stream runs again: {run}")
        assert run.process.poll() is None, run
        run.process.send_signal(signal.SIGINT)
        run.wait()

    def _down(self, words: list[str]) -> None:
        self._shell.done(*words)


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    shell = Shell(tmp_path, class_archive.parent)
    shell.use_small_jvms()
    try:
        yield Cluster(shell)
        shell.traces.check_nothing_left()
    finally:
        shell.traces.kill()


def test_each_command_of_the_readmes_five_minutes_does_what_it_shows(cluster: Cluster) -> None:
    section = SECTION.search((ROOT / "README.md").read_text())
    assert section
    tour = Tour(cluster, section.group(1))
    done = tour.follow()
    assert set(done) == set(tour.steps), "the README lost a command"
