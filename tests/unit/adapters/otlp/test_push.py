"""Pushes of metrics by OpenTelemetry's own exporter to a real web server on loopback."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from structlog.testing import capture_logs

from emberkeep.adapters.otlp import pusher as otlp_pusher
from emberkeep.adapters.otlp.exporter import OtlpExporter
from emberkeep.adapters.otlp.pusher import OtlpPusher
from emberkeep.adapters.otlp.settings import OtlpSettings
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import RetryLater
from tests.support.certificates import SERVERS, cluster_tls, issue
from tests.unit.adapters.otlp.collector import SLOW, Answer, collecting, refusing, rejecting
from tests.unit.rest.server import eventually


async def one_gauge() -> Sequence[Metric]:
    return [GaugeMetricFamily("emberkeep_one", "one", value=1)]


@asynccontextmanager
async def pushing(url: str, families: Any = one_gauge, **changes: Any) -> AsyncIterator[OtlpPusher]:
    values = {"endpoint": f"{url}/v1/metrics", "cluster": "production", "version": "0.1.0", "instance": "jm-1:8081"}
    settings = OtlpSettings(**{"interval": 0.01, **values, **changes})
    pusher = OtlpPusher(settings, OtlpExporter(settings), families, SystemClock())
    running = asyncio.create_task(pusher.run())
    try:
        yield pusher
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_push_says_whose_metrics_it_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=other")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=a")
    async with (
        collecting() as collector,
        pushing(collector.url, headers={"Authorization": "Bearer very-secret"}) as pusher,
    ):
        await eventually(lambda: pusher.sent >= 2)
    push = collector.pushes[0]
    assert push.path == "/v1/metrics"
    expected = {
        "service.name": "emberkeep",
        "service.instance.id": "jm-1:8081",
        "service.version": "0.1.0",
        "emberkeep.cluster.id": "production",
        "deployment.environment": "test",
    }
    assert expected.items() <= push.resource().items()
    headers = {name.lower(): value for name, value in push.headers.items()}
    assert (headers["authorization"], headers["x-tenant"]) == ("Bearer very-secret", "a")
    assert headers["content-type"] == "application/x-protobuf"
    assert push.series() == {("emberkeep_one", frozenset()): 1}


async def test_a_push_for_which_there_was_no_thread_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, refusals = threading.Thread.start, iter([True])

    def started(thread: threading.Thread) -> None:
        if thread.name == "metrics-push" and next(refusals, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    async with collecting() as collector, pushing(collector.url) as pusher:
        await eventually(lambda: pusher.sent >= 1)
        assert pusher.failed == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (500, "it answered with status 500"),
        (404, "it answered with status 404"),
        (302, "it answered with status 302"),
        (SLOW, "it does not answer in time"),
    ],
)
async def test_a_failure_is_said_once_and_the_next_push_is_tried(failure: int, reason: str) -> None:
    with capture_logs() as logs:
        async with (
            collecting(failure, failure, failure, failure) as collector,
            pushing(collector.url, timeout=0.2 if failure == SLOW else 10.0) as pusher,
        ):
            await eventually(lambda: pusher.sent >= 2)
    assert pusher.failed >= 2
    said = [(log["log_level"], log["event"], log.get("reason")) for log in logs]
    assert said == [
        ("warning", "cannot push all metrics to the OpenTelemetry endpoint, trying again at each interval", reason),
        ("info", "the OpenTelemetry endpoint takes all metrics again", None),
    ]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_push_is_repeated_when_the_collector_asks_for_that(status: int) -> None:
    async with collecting(refusing(status, retry_after="0"), refusing(status, retry_after="0")) as collector:
        async with pushing(collector.url, interval=3600.0) as pusher:
            await eventually(lambda: pusher.sent == 1)
        assert pusher.failed == 0
    first, second, third = (push.request.SerializeToString() for push in collector.pushes)
    assert first == second == third


async def test_repetitions_are_bounded() -> None:
    async with collecting(*[refusing(429, retry_after="0")] * 100) as collector:
        async with pushing(collector.url, interval=3600.0) as pusher:
            await eventually(lambda: pusher.failed == 1)
        assert len(collector.pushes) < 10


@pytest.mark.parametrize("status", [429, 503])
async def test_the_next_push_waits_as_long_as_the_collector_asks(status: int) -> None:
    with capture_logs() as logs:
        async with (
            collecting(refusing(status, retry_after="2")) as collector,
            pushing(collector.url, timeout=0.5) as pusher,
        ):
            await eventually(lambda: pusher.sent >= 2)
    assert pusher.failed == 1
    assert collector.times[1] - collector.times[0] >= 1.9
    assert logs[0]["reason"] == f"it answered with status {status}, and asks to wait 2 s"


async def test_no_collector_stops_pushes_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_pusher, "_LONGEST_PAUSE_SECONDS", 0.1)
    async with (
        collecting(refusing(503, retry_after="86400"), refusing(503, retry_after="inf")) as collector,
        pushing(collector.url, timeout=0.5) as pusher,
    ):
        await eventually(lambda: pusher.sent >= 1)


async def test_the_collectors_own_words_are_in_the_log() -> None:
    with capture_logs() as logs:
        async with (
            collecting(refusing(401, "no such tenant\n" + "x" * 9000)) as collector,
            pushing(collector.url) as pusher,
        ):
            await eventually(lambda: pusher.sent >= 1)
    reason = logs[0]["reason"]
    assert reason.startswith("it answered with status 401: no such tenant x")
    assert len(reason) < 400


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, {"Content-Type": "application/x-protobuf"}, b"\xff\xff"),
        Answer(401, {"Content-Type": "text/html"}, b"<html>"),
        Answer(401, {"Content-Type": "application/x-protobuf"}, b"x" * 1024**2),
    ],
)
async def test_an_answer_in_no_known_form_is_named_by_its_status(answer: Answer) -> None:
    with capture_logs() as logs:
        async with collecting(answer) as collector, pushing(collector.url) as pusher:
            await eventually(lambda: pusher.sent >= 1)
    assert logs[0]["reason"] == "it answered with status 401"


async def test_metrics_that_the_collector_rejects_are_said_once_and_counted() -> None:
    with capture_logs() as logs:
        async with (
            collecting(*[rejecting(3, "too many series")] * 3) as collector,
            pushing(collector.url) as pusher,
        ):
            await eventually(lambda: pusher.sent >= 2)
    assert pusher.failed == 3
    assert [(log["log_level"], log.get("reason")) for log in logs] == [
        ("warning", "it has rejected 3 data points: too many series"),
        ("info", None),
    ]


async def test_a_remark_of_a_collector_that_takes_everything_is_no_failure() -> None:
    async with collecting(rejecting(0, "use a newer version")) as collector, pushing(collector.url) as pusher:
        await eventually(lambda: pusher.sent >= 2)
    assert pusher.failed == 0


async def test_a_refused_connection_is_said_in_words() -> None:
    async with collecting() as collector:
        url = collector.url
    with capture_logs() as logs:
        async with pushing(url, timeout=0.2) as pusher:  # nothing listens there any more
            await eventually(lambda: pusher.failed >= 2)
    assert [log["reason"] for log in logs] == ["Connection refused"]


async def test_an_answer_that_never_ends_holds_up_nothing() -> None:
    """The library bounds the time between two bytes only."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        with capture_logs() as logs:
            async with pushing(url, timeout=0.2) as pusher:
                await eventually(lambda: pusher.failed >= 3)
        assert pusher.sent == 0
        assert len(logs) == 1
    finally:
        server.close()


async def test_metrics_that_cannot_be_read_now_are_pushed_later() -> None:
    answers = [RetryLater("the leader recovers its jobs"), None]

    async def families() -> Sequence[Metric]:
        error = answers.pop(0) if answers else None
        if error is not None:
            raise error
        return await one_gauge()

    with capture_logs() as logs:
        async with collecting() as collector, pushing(collector.url, families) as pusher:
            await eventually(lambda: pusher.sent >= 1)
    assert pusher.failed == 1
    assert logs[0]["reason"] == "the metrics cannot be read: the leader recovers its jobs"


async def test_an_unexpected_fault_while_metrics_are_read_counts_as_a_failure() -> None:
    faults: list[Exception] = [KeyError("gauge")]

    async def families() -> Sequence[Metric]:
        if faults:
            raise faults.pop()
        return await one_gauge()

    with capture_logs() as logs:
        async with collecting() as collector, pushing(collector.url, families) as pusher:
            await eventually(lambda: pusher.sent >= 1)
    assert pusher.failed == 1
    assert any("KeyError: 'gauge'" in line.get("reason", "") for line in logs)


async def test_the_last_push_carries_the_last_values_and_nothing_follows() -> None:
    value = 1.0

    async def families() -> Sequence[Metric]:
        return [GaugeMetricFamily("emberkeep_one", "one", value=value)]

    async with collecting() as collector, pushing(collector.url, families, interval=3600.0) as pusher:
        await eventually(lambda: pusher.sent == 1)
        value = 2.0
        await pusher.finish()
        await pusher.finish()
    assert [push.series()["emberkeep_one", frozenset()] for push in collector.pushes] == [1, 2]


async def test_the_last_push_is_skipped_while_pushes_fail() -> None:
    async with collecting(500, 500) as collector, pushing(collector.url, interval=3600.0) as pusher:
        await eventually(lambda: pusher.failed == 1)
        await pusher.finish()
        assert len(collector.pushes) == 1


async def test_the_collectors_certificate_is_verified(tmp_path: Path) -> None:
    cluster_tls(tmp_path / "ca", "127.0.0.1")
    cluster_tls(tmp_path / "other", "127.0.0.1")
    files = issue(tmp_path / "ca", tmp_path / "collector.pem", [SERVERS])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    async with collecting(tls=tls) as collector:
        async with pushing(collector.url, ca_file=str(tmp_path / "ca" / "ca.pem"), interval=3600.0) as pusher:
            await eventually(lambda: pusher.sent >= 1)
        received = len(collector.pushes)
        for wrong in (str(tmp_path / "other" / "ca.pem"), ""):
            with capture_logs() as logs:
                async with pushing(collector.url, ca_file=wrong, timeout=0.5) as pusher:
                    await eventually(lambda: pusher.failed >= 1)
            assert "certificate verify failed" in logs[0]["reason"]
        assert len(collector.pushes) == received
