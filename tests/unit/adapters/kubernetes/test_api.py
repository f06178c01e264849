"""The calls to an API server, as far as they need none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.kubernetes.api import KubernetesApi
from emberkeep.base.errors import Fatal, InvalidInput, Unavailable
from tests.support.kernel.taken_ports import taken_port

KUBECONFIG = """
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: t}}}}]
"""


@pytest.fixture
def api(tmp_path: Path) -> KubernetesApi:
    with taken_port("127.0.0.1", 0) as port:  # nobody listens there
        path = tmp_path / "config"
        path.write_text(KUBECONFIG.format(port=port.getsockname()[1]))
        return KubernetesApi("spark", str(path), "", timeout=1.0)


@pytest.mark.parametrize("error", [OSError("the token is away"), ValueError("the token is cut")])
def test_credentials_that_cannot_be_read_now_are_an_api_server_that_is_away(
    api: KubernetesApi, error: Exception
) -> None:
    def fail(_: Any) -> None:
        raise error

    api._api.api_client.configuration.refresh_api_key_hook = fail
    for call in (lambda: api.pods("a=b"), api.nodes, lambda: api.create_pod({}), lambda: api.delete_pod("p", "u", 1)):
        with pytest.raises(Unavailable, match="the token is"):
            call()


@pytest.mark.parametrize("text", ["{", "current-context: nowhere", "users: [{user: 7}]"])
def test_a_file_without_credentials_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(Fatal, match="no credentials for Kubernetes"):
        KubernetesApi("spark", str(path), "")


def test_a_faulty_pod_is_named_without_its_values(api: KubernetesApi) -> None:
    container = {"name": "taskmanager", "env": [{"name": "PASSWORD", "value": 4711}]}
    with pytest.raises(InvalidInput, match=r"spec\.containers\.0\.env\.0\.value") as caught:
        api.check_pod({"spec": {"containers": [container]}})
    assert "4711" not in caught.value.message


def test_a_name_that_the_api_server_would_drop_is_refused(api: KubernetesApi) -> None:
    with pytest.raises(InvalidInput, match="node_selector"):
        api.check_pod({"spec": {"containers": [{"name": "taskmanager"}], "node_selector": {"a": "b"}}})
