"""What a collector's answer to a push says besides its status, by OTLP's specification.

A collector may take a part of a push, or refuse it with a reason, or ask to wait. OpenTelemetry's exporter looks at the
status alone, and at Retry-After only within one push.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import requests
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from urllib3.exceptions import HTTPError

_FORM = "application/x-protobuf"
_MOST_BYTES = 64 * 1024  # of the body of an answer
_BODY_SECONDS = 2.0  # for the body, once the status is there
_MOST_SHOWN = 200  # characters of a message
_WAITS = (429, 503)  # the statuses with which Retry-After says when to come again


def problem_of(response: requests.Response) -> str:
    """Return why not everything was taken, "" if it was. Reads the body, within bounds."""
    status = response.status_code
    if 200 <= status < 300:
        return _rejected(_body(response))
    words = f"it answered with status {status}"
    if seconds := asked_pause(response):
        return f"{words}, and asks to wait {seconds:.0f} s"
    reason = "" if status < 400 else _message(_body(response))
    return f"{words}: {reason}" if reason else words


def asked_pause(response: requests.Response) -> float:
    """Return for how many seconds the collector asks to send nothing; 0 if it does not ask."""
    value = response.headers.get("Retry-After", "").strip()
    if response.status_code not in _WAITS or not value:
        return 0.0
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _rejected(body: bytes) -> str:
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return ""
    if partial.rejected_data_points <= 0:  # a message without a number is only a remark
        return ""
    reason = _shown(partial.error_message)
    words = f"it has rejected {partial.rejected_data_points} data points"
    return f"{words}: {reason}" if reason else words


def _message(body: bytes) -> str:
    try:
        return _shown(Status.FromString(body).message)
    except DecodeError:
        return ""


def _shown(message: str) -> str:
    words = " ".join("".join(char if char.isprintable() else " " for char in message).split())
    return words if len(words) <= _MOST_SHOWN else f"{words[:_MOST_SHOWN]}…"


def _body(response: requests.Response) -> bytes:
    """Return the body if it is a message of OTLP, not too large and not too slow; else b""."""
    if response.headers.get("Content-Type", "").partition(";")[0].strip() != _FORM:
        return b""
    body, until = b"", time.monotonic() + _BODY_SECONDS
    try:
        # Not in one go: each part that arrives would renew the time that the push has.
        while part := response.raw.read1(_MOST_BYTES, decode_content=True):
            body += part
            if len(body) > _MOST_BYTES or time.monotonic() > until:
                return b""
    except (HTTPError, OSError):
        return b""
    return body
