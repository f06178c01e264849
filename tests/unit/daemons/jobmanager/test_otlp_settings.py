"""The settings of the push to OpenTelemetry: what is refused when a JobManager starts, and with which words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emberkeep.adapters.otlp.settings import OtlpSettings
from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.daemons.jobmanager.metrics_push import otlp_settings

ENDPOINT = "https://collector.example:4318"


def settings(directory: Path, **values: object) -> OtlpSettings | None:
    texts = {f"metrics.otlp.{key.replace('_', '-')}": str(value) for key, value in values.items()}
    configuration = Configuration().with_texts({**texts, "emberkeep.state-dir": str(directory)}, "test")
    return otlp_settings(configuration, state_layout(configuration, {}))


def headers_file(directory: Path, text: str) -> Path:
    path = directory / "headers"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_nothing_is_pushed_without_an_endpoint(tmp_path: Path) -> None:
    assert settings(tmp_path, headers_file="/no/such/file") is None


def test_all_settings_are_used(tmp_path: Path) -> None:
    file = headers_file(tmp_path, "Authorization: Bearer very-secret\n\nX-Tenant:  a b \n")
    found = settings(tmp_path, endpoint=ENDPOINT, headers_file=file, interval="5s")
    assert found is not None
    assert (found.endpoint, found.interval) == (f"{ENDPOINT}/v1/metrics", 5.0)
    assert found.headers == {"Authorization": "Bearer very-secret", "X-Tenant": "a b"}
    assert found.cluster.startswith("embedded-")
    assert "very-secret" not in repr(found)


@pytest.mark.parametrize(
    ("endpoint", "used"),
    [
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
        ("https://metrics.example/otlp/v1/metrics", "https://metrics.example/otlp/v1/metrics"),
    ],
)
def test_an_endpoint_without_a_path_gets_that_of_the_protocol(tmp_path: Path, endpoint: str, used: str) -> None:
    found = settings(tmp_path, endpoint=endpoint)
    assert found is not None
    assert found.endpoint == used


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"endpoint": "collector:4317"}, "otlp.endpoint is not the address of a web server"),
        ({"endpoint": "https://collector.example:99999/"}, "otlp.endpoint is not an address"),
        ({"endpoint": "https://user:very-secret/part@collector.example/"}, "otlp.endpoint is not an address"),
        ({"endpoint": "https://user:very-secret@collector.example/"}, "more than a host, a port and a path"),
        ({"endpoint": f"{ENDPOINT}/?key=very-secret"}, "more than a host, a port and a path"),
        ({"endpoint": "http://collector.example:4318"}, "would send metrics unencrypted to collector.example"),
        ({"interval": "500ms"}, "otlp.interval is shorter than 1 s"),
        ({"ca_file": "/no/such/file"}, "ca-file: cannot read /no/such/file"),
    ],
)
def test_what_cannot_work_is_refused_without_showing_secrets(tmp_path: Path, values: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings(tmp_path, **{"endpoint": ENDPOINT, **values})
    assert text in refused.value.message
    assert "very-secret" not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize("line", ["very-secret", "very secret: x", "X-Token: very-secret\x01", "X-Token:"])
def test_a_line_that_is_no_header_is_refused_without_showing_it(tmp_path: Path, line: str) -> None:
    file = headers_file(tmp_path, f"X-Tenant: a\n{line}\n")
    with pytest.raises(InvalidInput, match=r"headers-file: line 2 of .* is not a header") as refused:
        settings(tmp_path, endpoint=ENDPOINT, headers_file=file)
    assert "very" not in f"{refused.value.message} {refused.value.hint}"


def test_headers_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = headers_file(tmp_path, "X-Token: very-secret")
    file.chmod(0o644)
    with pytest.raises(Fatal, match="can be read or written by others"):
        settings(tmp_path, endpoint=ENDPOINT, headers_file=file)


def test_the_extra_is_named_if_it_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "emberkeep.adapters.otlp.exporter", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)  # its import fails
    with pytest.raises(Fatal, match="needs OpenTelemetry's exporter, which is not installed") as refused:
        settings(tmp_path, endpoint=ENDPOINT)
    assert refused.value.hint == "pip install 'emberkeep[opentelemetry]'"
