"""Spark's History Server: its command, and which of its pages belong to one application.

It listens on loopback, and Spark's own filter asks for a token that is signed with a key of this process, as in a
driver (``spark_ui``). The decisions about paths are pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.errors import Absent
from emberkeep.base.files.durable import write_file
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.java import find_java, jvm_open_options
from emberkeep.spark.jvm.driver_command import LOG_CONFIGURATION, encode_properties
from emberkeep.spark.jvm.spark_ui import access_settings

HEAP_MB = 512
APPLICATIONS = 8  # whose pages it keeps in memory
NO_APPLICATION = "/history/-/"  # the path that the server learns last; no application has this id
_MAIN = "org.apache.spark.deploy.history.HistoryServer"
# Parts that a server resolves to another path, plain or encoded: no page of Spark has them in its path.
_RESOLVED = re.compile(r"//|\\|;|/\.\.?(?:/|$)|%(?:2e|2f|5c|3b|25|00)", re.IGNORECASE)
_SHARED = ("/api/v1/version",)


@dataclass(frozen=True)
class HistoryServerPage:
    """Where a page of an application is: at ``path`` of the server, or elsewhere if ``moved``."""

    path: str
    moved: bool = False


def history_page(app_id: str, path: str) -> HistoryServerPage:
    """Return where the page is that a driver has at ``path``, or the server has there.

    ``path``: from "/" on, with its query. Raises Absent for pages that are not of this application: its list, its own
    log, other applications.
    """
    plain = path.partition("?")[0]
    if _RESOLVED.search(plain):
        raise Absent(f"{plain[:200]} is not a page of the application")
    own = (f"/history/{app_id}", f"/api/v1/applications/{app_id}")
    if plain in (*own, *_SHARED) or plain.startswith((*(f"{place}/" for place in own), "/static/")):
        return HistoryServerPage(path)
    if plain.startswith(("/history", "/api", "/logPage", "/metrics")):
        raise Absent(f"{plain[:200]} is not a page of application {app_id}")
    return HistoryServerPage(f"/history/{app_id}{path}", moved=True)


def prepare_history_server(directory: Path, logs: Path, key: bytes, environ: Mapping[str, str]) -> list[str]:
    """Write the server's settings to ``directory``, which exists, and return its command.

    ``logs``: directory with event logs. ``key``: see ``spark_ui``. Raises Fatal, JavaNotFound, SparkInternalsMissing.
    """
    settings = directory / "history-server.properties"
    write_file(
        settings,
        encode_properties(
            {
                "spark.history.fs.logDirectory": f"file:{logs}",  # not escaped: it becomes a Path of Hadoop as it is
                "spark.history.ui.port": "0",
                "spark.history.ui.acls.enable": "false",
                "spark.history.fs.cleaner.enabled": "false",
                "spark.history.fs.update.interval": "1d",  # it loads a log when its page is asked for
                "spark.history.retainedApplications": str(APPLICATIONS),
                "spark.ui.killEnabled": "false",
                **access_settings(key),
            }
        ).encode(),
    )
    return [
        str(find_java(environ).executable),
        f"-Xmx{HEAP_MB}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        *jvm_open_options(),
        "-cp",
        str(spark_home(environ) / "jars" / "*"),
        _MAIN,
        "--properties-file",
        str(settings),
    ]
