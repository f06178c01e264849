"""Flink's own command line, as a user of Flink would run it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.commands import Ended

_COMMAND_SECONDS = 120


@dataclass(frozen=True)
class FlinkClient:
    """Runs commands against one JobManager. ``directory``: for its configuration, which is empty."""

    java: Path
    jar: Path
    directory: Path
    address: str  # host:port
    token: str

    def run(self, *words: str) -> Ended:
        self.directory.mkdir(exist_ok=True)
        (self.directory / "config.yaml").touch()
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "FLINK_CONF_DIR": str(self.directory),
            "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {self.token}",
        }
        main = ("-cp", str(self.jar), "org.apache.flink.client.cli.CliFrontend")
        done = subprocess.run(
            [
                str(self.java),
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                *main,
                *self._placed(words),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def _placed(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The address goes behind the command's name."""
        return (words[0], "-m", self.address, *words[1:])

    def done(self, *words: str) -> str:
        """Output of a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, f"flink {' '.join(words)}: {ended}"
        return ended.out
