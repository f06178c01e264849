"""The `emberkeep` command as a user runs it: a process of its own with an environment, a home and a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.options.task_managers import BUILD_CLASS_ARCHIVE
from emberkeep.base.configuration.sources import environment_variable
from tests.integration.conditions import DEADLINE
from tests.integration.leaks import Traces

_INHERITED = ("PATH", "JAVA_HOME", "LANG", "LC_ALL")
# JVMs of tests live for seconds: compiling what is hot a second time, and collecting in threads beside, costs them more
# processor time than it gives back.
QUICK_JVMS = {
    f"spark.{which}.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" for which in ("driver", "executor")
}
# Clusters of tests end before a standby process would have been warmed. The release before does not know these keys.
NO_STANDBYS = {"EMBERKEEP_TASKMANAGER__STANDBY__DRIVERS": "0", "EMBERKEEP_TASKMANAGER__STANDBY__EXECUTORS": "0"}
STORY_LINES = 12  # of each JobManager

SMALL = (
    *("--driver-memory", "512m", "--executor-memory", "512m"),
    *(word for key, value in QUICK_JVMS.items() for word in ("--conf", f"{key}={value}")),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- standard output\n{self.out}\n--- standard error\n{self.err}"


class Running:
    """A command that runs; its output goes to files."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self, seconds: float = DEADLINE) -> Ended:
        """Fails when it does not end in time."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the command has not ended after {seconds:g} s\n{self}") from None
        return Ended(code, self.out, self.err)

    def __str__(self) -> str:
        return f"--- standard output\n{self.out}\n--- standard error\n{self.err}"


class Shell:
    """Runs commands in ``directory/work``, with home, state and temporary directory below ``directory`` too."""

    def __init__(self, directory: Path, class_archives: Path, program: Path | None = None) -> None:
        """``program``: the command; None: that of the tests' own environment."""
        self.directory = directory
        self.program = program or Path(sys.executable).with_name("emberkeep")
        self.work = directory / "work"
        self.state = directory / "state" / "emberkeep"
        self.traces = Traces(directory)
        for path in (self.work, directory / "home", directory / "cache" / "emberkeep"):
            path.mkdir(parents=True)
        (directory / "cache" / "emberkeep" / "class-archives").symlink_to(class_archives)
        self.environment = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "HOME": str(directory / "home"),
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CACHE_HOME": str(directory / "cache"),
            **self.traces.environment(),
            **NO_STANDBYS,
        }
        if not list(class_archives.glob("*.jsa")):  # this test needs none, and must not spend a minute on one
            self.environment[environment_variable(BUILD_CLASS_ARCHIVE.key)] = "false"
        self._commands = 0

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def use_small_jvms(self) -> None:
        """As a user who has a spark-defaults.conf, for commands that are given as they are documented."""
        directory = self.directory / "spark-conf"
        directory.mkdir()
        settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", **QUICK_JVMS}
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        (directory / "spark-defaults.conf").write_text("".join(lines))
        self.environment["SPARK_CONF_DIR"] = str(directory)

    def start(self, *words: str, environment: dict[str, str] | None = None, program: Path | None = None) -> Running:
        """``program``: another one than the shell's."""
        self._commands += 1
        out, err = (self.directory / f"command-{self._commands}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [str(program or self.program), *words],
                cwd=self.work,
                env=self.environment if environment is None else environment,
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                start_new_session=True,
            )
        return Running(process, out, err)

    def run(self, *words: str, environment: dict[str, str] | None = None, seconds: float = DEADLINE) -> Ended:
        return self.start(*words, environment=environment).wait(seconds)

    def done(self, *words: str) -> Ended:
        """A command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, f"emberkeep {' '.join(words)}: {ended}\n{self.leaders_story()}"
        return ended

    def leaders_story(self) -> str:
        """What each JobManager last logged about leadership, and its last warnings."""
        story = []
        for log in sorted(self.state.glob("jobmanager*/**/jobmanager.log")):
            entries = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            told = [each for each in entries if each.get("level") != "info" or "lead" in each.get("event", "")]
            story += [f"--- {log.parent.parent.name}", *map(_shortened, told[-STORY_LINES:])]
        return "\n".join(story)


@contextmanager
def watched(shell: Shell) -> Iterator[Shell]:
    """Whatever the shell has started is gone afterwards, or this fails."""
    try:
        with shell.traces.watching():
            yield shell
        shell.traces.check_nothing_left()
    finally:
        shell.traces.kill()


def _shortened(entry: dict[str, object]) -> str:
    kept = {name: entry[name] for name in ("timestamp", "event", "was", "now", "because", "reason") if name in entry}
    return str(kept)[:300]
