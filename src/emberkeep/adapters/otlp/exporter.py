"""Sends metrics with OpenTelemetry's own exporter. Imported only if an endpoint is set: opentelemetry is optional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import Metric

from emberkeep.adapters.otlp.answers import asked_pause, problem_of
from emberkeep.adapters.otlp.conversion import metrics_data
from emberkeep.adapters.otlp.outcome import PushOutcome
from emberkeep.adapters.otlp.settings import OtlpSettings


class OtlpExporter:
    """Implements Exporter. One thread at a time may call ``send``."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._session = _Session()
        self._exporter: OTLPMetricExporter | None = None
        self._resource = Resource.get_empty()

    def send(self, families: Sequence[Metric], now_ms: int) -> PushOutcome:
        """Send ``families`` in one request, repeated until the timeout."""
        exporter = self._open()
        data = metrics_data(families, self._resource, self._settings.version, now_ms * 1_000_000)
        self._session.problem, self._session.pause = "", 0.0
        if exporter.export(data) is MetricExportResult.SUCCESS:
            return PushOutcome(self._session.problem)
        problem = self._session.problem or "the metrics cannot be encoded, or are too large for one request"
        return PushOutcome(problem, self._session.pause)

    def close(self) -> None:
        """End the pause between two tries, and close the connection."""
        if self._exporter is not None:
            self._exporter.shutdown()

    def _open(self) -> OTLPMetricExporter:
        """Return the exporter. It is made in the thread that sends, as it reads files and the environment."""
        if self._exporter is None:
            settings = self._settings
            # `create` adds OTEL_RESOURCE_ATTRIBUTES.
            self._resource = Resource.create(
                {
                    "service.name": "emberkeep",
                    "service.instance.id": settings.instance,
                    "service.version": settings.version,
                    "emberkeep.cluster.id": settings.cluster,
                }
            )
            self._exporter = OTLPMetricExporter(
                endpoint=settings.endpoint,
                certificate_file=settings.ca_file or None,
                headers=settings.headers,
                timeout=settings.timeout,
                compression=Compression.Gzip,
                session=self._session,
            )
        return self._exporter


class _Session(requests.Session):
    """Keeps what the newest answer says beside its status, which the exporter does not look at.

    Proxies and .netrc are not used. A redirect is a failure: the exporter takes it for a success, and nothing arrives.
    The body of the response is read in part only, because its length has no bound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.problem = ""
        self.pause = 0.0

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        try:
            response = super().send(request, **{**options, "stream": True})
        except requests.RequestException as error:
            self.problem, self.pause = _reason(error), 0.0
            raise
        self.problem, self.pause = problem_of(response), asked_pause(response)
        response.close()
        if 300 <= response.status_code < 400:
            raise requests.HTTPError(self.problem)
        return response


def _reason(error: requests.RequestException) -> str:
    """Return the first cause of ``error`` in words. The text of ``error`` itself has names of classes."""
    if isinstance(error, requests.Timeout):
        return "it does not answer in time"
    cause: BaseException = error
    while cause.__context__ is not None:
        cause = cause.__context__
    words = cause.strerror if isinstance(cause, OSError) else None
    return str(words or cause) or type(cause).__name__
