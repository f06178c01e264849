"""Spark's History Server: which pages belong to one application, and what its command says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent
from emberkeep.spark.jvm.history_server import HistoryServerPage, history_page, prepare_history_server

APP = "app-20261126131453-0000-acf4b0f9"


@pytest.mark.parametrize(
    "path",
    [
        f"/history/{APP}",
        f"/history/{APP}/",
        f"/history/{APP}/SQL/execution/?id=1&a=%2F..%2Fb//",
        "/static/webui.js",
        "/static/sql/spark-sql-viz.css",
        f"/api/v1/applications/{APP}",
        f"/api/v1/applications/{APP}/stages/0/0/taskTable?search=%3B",
        "/api/v1/version",
    ],
)
def test_pages_of_the_application_are_read_where_they_are(path: str) -> None:
    assert history_page(APP, path) == HistoryServerPage(path)


@pytest.mark.parametrize("path", ["/", "/jobs/", "/SQL/?id=1", "/StreamingQuery/statistics/?id=a", "/environment/"])
def test_a_page_that_the_driver_had_has_moved(path: str) -> None:
    assert history_page(APP, path) == HistoryServerPage(f"/history/{APP}{path}", moved=True)


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize(
    "path",
    [
        "/history/app-other/jobs/",
        f"/history/{APP}x/jobs/",
        "/history",
        "/history/",
        "/historyx",
        "/api/v1/applications",
        "/api/v1/applications/",
        "/api/v1/applications/app-other/jobs",
        "/api/v2/anything",
        "/logPage/?self&logType=out",
        "/metrics/json",
        f"/history/{APP}/../app-other/jobs/",
        f"/history/{APP}/..",
        f"/history/{APP}/%2e%2e/app-other/jobs/",
        f"/history/{APP}/%2E./app-other/jobs/",
        f"/history/{APP}%2f..%2fapp-other/",
        f"/history/{APP}/%252e%252e/app-other/",
        f"/history/{APP}//app-other",
        f"/history/{APP};x/../app-other/",
        f"/history/{APP}\\..\\app-other",
        "/static/../history/app-other/",
        "/static/%2e%2e/api/v1/applications",
        "/./history/app-other/",
    ],
)
def test_no_other_page_of_the_server_is_read(path: str) -> None:
    with pytest.raises(Absent):
        history_page(APP, path)


@pytest.mark.req("SEC-10")
def test_the_key_is_in_a_file_that_only_its_owner_reads_and_in_no_command(tmp_path: Path) -> None:
    command = prepare_history_server(tmp_path, tmp_path / "logs", bytes(range(32)), os.environ)
    settings = tmp_path / "history-server.properties"
    assert settings.stat().st_mode & 0o077 == 0
    text = settings.read_text()
    (secret,) = (line.partition("=")[2] for line in text.splitlines() if "secretKey" in line)
    assert secret
    assert secret not in " ".join(command)
    assert "spark.ui.filters=org.apache.spark.ui.JWSFilter" in text
    assert command[-2:] == ["--properties-file", str(settings)]
