"""The sources of credentials, as far as they need no API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.kubernetes.api import KubernetesApi
from emberkeep.adapters.kubernetes.credentials import CredentialSource
from emberkeep.base.errors import Fatal, InvalidInput

_CONFIG = """
current-context: here
contexts:
  - {{name: here, context: {{cluster: here, user: me}}}}
  - {{name: other, context: {{cluster: here, user: other}}}}
clusters: [{{name: here, cluster: {{server: "https://127.0.0.1:1"}}}}]
users:
  - {{name: me, user: {{exec: {{apiVersion: v1, command: ./plugin}}}}}}
  - {{name: other, user: {{token: plain}}}}
"""
_PLUGIN = """#!/bin/sh
echo '{"apiVersion": "v1", "kind": "E", "status": {"clientCertificateData": "CERTIFICATE", "clientKeyData": "KEY"}}'
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file whose plugin is beside it."""
    program = tmp_path / "plugin"
    program.write_text(_PLUGIN)
    program.chmod(0o700)
    path = tmp_path / "config"
    path.write_text(_CONFIG.format())
    return path


def test_a_certificate_of_a_plugin_is_used(config: Path) -> None:
    settings = CredentialSource(str(config), "", 10.0).read().settings
    files = (settings.cert_file, settings.key_file)
    assert [Path(file).read_text() for file in files if file] == ["CERTIFICATE", "KEY"]


def test_the_plugin_of_another_context_is_not_asked(config: Path) -> None:
    (config.parent / "plugin").unlink()
    assert CredentialSource(str(config), "other", 10.0).read().settings.api_key == {"BearerToken": "Bearer plain"}


def test_a_context_without_a_file_is_refused_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(InvalidInput, match=r"kubernetes\.context is prod") as caught:
        KubernetesApi("spark", "", "prod")
    assert caught.value.field == "kubernetes.context"


def test_a_pod_without_a_service_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(Fatal, match="token file does not exist"):
        KubernetesApi("spark", "", "")
