"""An OpenTelemetry collector on loopback: it decodes what it receives, and shows it as Prometheus would."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint
from prometheus_client.utils import floatToGoString

from tests.unit.rest.server import eventually

SLOW = -1  # an answer after the sender's patience
_UNITS = {"s": "seconds", "By": "bytes"}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Push:
    path: str
    headers: dict[str, str]
    request: ExportMetricsServiceRequest

    def resource(self) -> dict[str, str]:
        (resource,) = self.request.resource_metrics
        return {each.key: each.value.string_value for each in resource.resource.attributes}

    def metrics(self) -> dict[str, Metric]:
        (resource,) = self.request.resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def series(self) -> Series:
        return as_prometheus(self.request)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def rejecting(points: int, message: str) -> Answer:
    """Return the answer to a push of which ``points`` data points were not taken."""
    partial = ExportMetricsPartialSuccess(rejected_data_points=points, error_message=message)
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
    return Answer(200, {"Content-Type": "application/x-protobuf"}, body)


def refusing(status: int, message: str = "", retry_after: str = "") -> Answer:
    """Return a refusal as a collector sends it."""
    headers = {"Content-Type": "application/x-protobuf"} | ({"Retry-After": retry_after} if retry_after else {})
    return Answer(status, headers, Status(message=message).SerializeToString())


@dataclass
class CollectorServer:
    """``answers``: the answers, status codes or SLOW, to the next requests; then 200. ``times``: when pushes came."""

    answers: list[int | Answer] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()  # aiohttp has decompressed it
        message = ExportMetricsServiceRequest.FromString(body)
        check_valid(message)
        self.pushes.append(Push(request.path, dict(request.headers), message))
        self.times.append(time.monotonic())
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Answer):
            return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
        if answer == SLOW:
            await asyncio.sleep(60)
        headers = {"Location": f"{self.url}/elsewhere"} if 300 <= answer < 400 else {}
        return web.Response(status=max(answer, 200), headers=headers)

    async def gets(self, count: int) -> None:
        await eventually(lambda: len(self.pushes) >= count)


@asynccontextmanager
async def collecting(*answers: int | Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[CollectorServer]:
    server = CollectorServer(list(answers))
    app = web.Application(client_max_size=64 * 1024**2)
    app.router.add_post("/{path:.*}", server.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


def check_valid(request: ExportMetricsServiceRequest) -> None:
    """Check what OTLP's definition demands and a decoder does not see."""
    (resource,) = request.resource_metrics
    _check_attributes(resource.resource.attributes)
    for scope in resource.scope_metrics:
        names = [metric.name for metric in scope.metrics]
        assert len(set(names)) == len(names), "a stream is one metric"
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            assert kind in ("gauge", "sum", "histogram"), metric.name
            points = getattr(metric, kind).data_points
            assert points, metric.name
            series = [frozenset((each.key, each.value.string_value) for each in point.attributes) for point in points]
            assert len(set(series)) == len(series), f"{metric.name}: two points of one series"
            for point in points:
                _check_attributes(point.attributes)
                assert point.time_unix_nano > 0
                assert point.start_time_unix_nano <= point.time_unix_nano, metric.name
                if kind == "histogram":
                    bounds = list(point.explicit_bounds)
                    assert bounds == sorted(set(bounds)), metric.name
                    assert len(point.bucket_counts) == len(bounds) + 1, metric.name
                    assert point.count == sum(point.bucket_counts), metric.name
                elif kind == "sum":
                    assert point.as_double >= 0, metric.name


def _check_attributes(attributes: Iterable[KeyValue]) -> None:
    keys = [each.key for each in attributes]
    assert all(keys)
    assert len(set(keys)) == len(keys), keys


def as_prometheus(request: ExportMetricsServiceRequest) -> Series:
    """Return the series that Prometheus makes of a push, by the rules of its translator, without those of histograms'
    and counters' creation. A label ``emberkeep_job`` is shown as ``job``.
    """
    found: Series = {}

    def put(name: str, labels: dict[str, str], value: float) -> None:
        key = (name, frozenset(labels.items()))
        assert key not in found, key
        found[key] = value

    for resource in request.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            name = _name(metric)
            kind = metric.WhichOneof("data")
            if kind == "histogram":
                assert metric.histogram.aggregation_temporality == _CUMULATIVE
                for point in metric.histogram.data_points:
                    labels, below = _labels(point.attributes), 0
                    assert not point.HasField("min")
                    assert not point.HasField("max")
                    for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True):
                        below += count
                        le = floatToGoString(bound)  # type: ignore[no-untyped-call]
                        put(f"{name}_bucket", {**labels, "le": le}, below)
                    put(f"{name}_count", labels, point.count)
                    put(f"{name}_sum", labels, point.sum)
                continue
            for number in _points(metric):
                put(name, _labels(number.attributes), number.as_double)
    return found


_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def _points(metric: Metric) -> list[NumberDataPoint]:
    if metric.WhichOneof("data") == "gauge":
        return list(metric.gauge.data_points)
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == _CUMULATIVE
    return list(metric.sum.data_points)


def _name(metric: Metric) -> str:
    words = metric.name.split("_")
    unit = _UNITS.get(metric.unit, "")
    if unit and unit not in words:
        words.append(unit)
    if metric.WhichOneof("data") == "sum":
        words = [*(word for word in words if word != "total"), "total"]
    if metric.WhichOneof("data") == "gauge" and metric.unit == "1":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    return "_".join(words)


def _labels(attributes: Iterable[KeyValue]) -> dict[str, str]:
    labels = {}
    for each in attributes:
        name = each.key.replace(".", "_")
        assert name not in ("job", "instance"), "Prometheus replaces these with the service's name and id"
        labels[name.removeprefix("emberkeep_")] = each.value.string_value
    return labels
