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
    """Runs commands against one JobManager. ``directory``: for its configuration, which trusts the cluster's CA."""

    java: Path
    jar: Path
    directory: Path
    address: str  # host:port
    token: str
    ca: Path

    def trust(self) -> None:
        """Write the configuration, as docs/rest.md tells it."""
        self.directory.mkdir()
        store = self.directory / "trust.p12"
        words = ("-importcert", "-noprompt", "-alias", "emberkeep", "-storetype", "PKCS12", "-storepass", "emberkeep")
        keytool = [
            str(self.java.with_name("keytool")),
            "-J-XX:-UsePerfData",
            *words,
            "-file",
            str(self.ca),
            "-keystore",
            str(store),
        ]
        subprocess.run(keytool, check=True, capture_output=True, timeout=_COMMAND_SECONDS)
        settings = {
            "security.ssl.rest.truststore": str(store),
            "security.ssl.rest.truststore-password": "emberkeep",
            "security.ssl.rest.truststore-type": "PKCS12",
            "security.ssl.protocol": "TLSv1.3",
            "security.ssl.algorithms": "TLS_AES_256_GCM_SHA384",
        }
        lines = (f"{key}: {value}\n" for key, value in settings.items())
        (self.directory / "config.yaml").write_text("".join(lines))

    def run(self, *words: str) -> Ended:
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
        """The address goes behind the command's name. With ``-m``, a setting in a file does not switch TLS on."""
        return (words[0], "-m", self.address, "-Dsecurity.ssl.rest.enabled=true", *words[1:])

    def done(self, *words: str) -> str:
        """Output of a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, f"flink {' '.join(words)}: {ended}"
        return ended.out
