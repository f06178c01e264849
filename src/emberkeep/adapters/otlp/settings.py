"""Settings of the push of metrics. They need no OpenTelemetry library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OtlpSettings:
    """``instance``: the JobManager's address. ``cluster``: the cluster's id. ``ca_file``: "" for the library's CAs.

    ``interval``: seconds between the beginnings of two pushes. ``timeout``: seconds that one push may take.
    """

    endpoint: str
    cluster: str
    version: str
    instance: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    interval: float = 30.0
    timeout: float = 10.0
