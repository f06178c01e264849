"""The push of metrics to OpenTelemetry: its settings, checked when a JobManager starts, and what pushes."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import emberkeep
from emberkeep.adapters.otlp.pusher import Families, OtlpPusher
from emberkeep.adapters.otlp.settings import OtlpSettings
from emberkeep.base.clock import Clock
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.monitoring import (
    METRICS_OTLP_CA_FILE,
    METRICS_OTLP_ENDPOINT,
    METRICS_OTLP_HEADERS_FILE,
    METRICS_OTLP_INTERVAL,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.configuration.web_servers import check_web_server
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.files.private import read_private
from emberkeep.base.tls.contexts import outside_context

_PATH = "/v1/metrics"  # of the protocol, for an endpoint without a path
_SHORTEST_INTERVAL = 1.0  # seconds
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]+)")


def otlp_settings(configuration: Configuration, layout: StateLayout) -> OtlpSettings | None:
    """Return the settings of the push; None if no endpoint is set.

    A process reads them when it starts, so that a mistake is found then and not at a takeover. Raises InvalidInput;
    Fatal (OpenTelemetry is not installed, the file with the headers); what ``cluster_id`` raises.
    """
    endpoint = configuration[METRICS_OTLP_ENDPOINT]
    if not endpoint:
        return None
    interval = configuration[METRICS_OTLP_INTERVAL]
    if interval < _SHORTEST_INTERVAL:
        key = METRICS_OTLP_INTERVAL.key
        raise InvalidInput(f"{key} is shorter than {_SHORTEST_INTERVAL:g} s", field=key, hint="for example 30s")
    ca_file = configuration[METRICS_OTLP_CA_FILE]
    outside_context(ca_file, METRICS_OTLP_CA_FILE.key)  # refuses a file that is unusable
    settings = OtlpSettings(
        endpoint=_checked(endpoint),
        cluster=cluster_id(configuration, layout),
        version=emberkeep.__version__,
        headers=_headers(configuration[METRICS_OTLP_HEADERS_FILE]),
        ca_file=ca_file,
        interval=interval,
    )
    _check_installed()
    return settings


def open_pusher(settings: OtlpSettings, address: str, families: Families, clock: Clock) -> OtlpPusher:
    """Return what pushes ``families`` for the JobManager at ``address``. Nothing is sent before it runs."""
    from emberkeep.adapters.otlp.exporter import OtlpExporter

    settings = dataclasses.replace(settings, instance=address)
    return OtlpPusher(settings, OtlpExporter(settings), families, clock)


def _check_installed() -> None:
    try:
        importlib.import_module("emberkeep.adapters.otlp.exporter")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("opentelemetry", "requests"):
            raise
        raise Fatal(
            f"{METRICS_OTLP_ENDPOINT.key} needs OpenTelemetry's exporter, which is not installed",
            hint="pip install 'emberkeep[opentelemetry]'",
        ) from None


def _checked(endpoint: str) -> str:
    """Return the address with a path. Raises InvalidInput, which does not quote what may contain a secret."""
    key = METRICS_OTLP_ENDPOINT.key
    hint = "write https://host:4318; gRPC is not supported"
    parts = check_web_server(endpoint, key, sends="metrics", hint=hint)
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInput(
            f"{key} contains more than a host, a port and a path",
            field=key,
            hint=f"put credentials into the file that {METRICS_OTLP_HEADERS_FILE.key} names",
        )
    return parts._replace(path=parts.path.rstrip("/") or _PATH).geturl()


def _headers(file: str) -> dict[str, str]:
    """Return the headers in a file with a ``Name: value`` on each line. Raises InvalidInput, which quotes no value."""
    if not file:
        return {}
    key = METRICS_OTLP_HEADERS_FILE.key
    headers = {}
    for number, line in enumerate(read_private(Path(file), key).splitlines(), start=1):
        if not line.strip():
            continue
        match = _HEADER.fullmatch(line.strip())
        if match is None:
            raise InvalidInput(
                f"{key}: line {number} of {file} is not a header",
                field=key,
                hint="write one header a line, such as Authorization: Bearer TOKEN",
            )
        headers[match.group(1)] = match.group(2)
    return headers
