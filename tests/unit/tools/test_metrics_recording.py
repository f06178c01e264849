"""What a recording of metrics reads of a cluster, and writes for promtool."""

from __future__ import annotations

import math
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.metrics_recording import __main__ as recording
from tools.metrics_recording.scenes import Stage
from tools.metrics_recording.scrapes import exposition_of, names_in, promtool_values, series_in

EXPOSITION = """\
# TYPE emberkeep_alarm gauge
emberkeep_alarm{job="0f",kind="state",query="counts"} 1.0
# TYPE emberkeep_jobs gauge
emberkeep_jobs{status="FAILED"} 2.0
# TYPE emberkeep_other gauge
emberkeep_other 3.0
"""


def test_only_what_the_rules_read_is_kept_with_names_that_do_not_change() -> None:
    names = names_in("max by (job) (emberkeep_alarm) > 0 and emberkeep_jobs and emberkeep_storage_free_bytes < 5")
    assert names == {"emberkeep_alarm", "emberkeep_jobs"}
    assert series_in(EXPOSITION, names, "jm-1", {"0f": "stream"}) == {
        'emberkeep_alarm{instance="jm-1",job="stream",kind="state",query="counts"}': 1.0,
        'emberkeep_jobs{instance="jm-1",status="FAILED"}': 2.0,
    }


def test_an_answer_that_breaks_off_is_none() -> None:
    def break_off(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nemberkeep_other 3.0\n")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        server.settimeout(30)
        broken = pool.submit(break_off, server)
        assert exposition_of(f"http://127.0.0.1:{server.getsockname()[1]}", "token", "") is None
        broken.result()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 1.0, 1.0, 2.5], "1x2 2.5"),
        ([None, None, 1.0, None, None, None, 2.0, None], "_x2 1 stale _x2 2 stale"),
        ([1795914835557.0, 38.123456], "1795914835557 38.1"),
        ([math.nan, math.nan, 0.0], "NaN NaN 0"),
    ],
)
def test_values_are_written_as_promtool_reads_them(values: list[float | None], text: str) -> None:
    assert promtool_values(values) == text


def test_a_recording_that_is_broken_off_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(stage: Stage) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "play", break_off)
    file = tmp_path / "recorded.yml"
    file.write_text("the one before")
    with pytest.raises(KeyboardInterrupt):
        recording.main([str(file)])
    assert file.read_text() == "the one before"
