"""The state gateway of a warm-up."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from emberkeep.daemons.warm_up.state_gateway import serve_state
from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, encode
from emberkeep.spark.standby.state_access import StateAccess


def ask(access: StateAccess, method: str, operation: str, *, token: str = "") -> dict[str, object]:
    """Send a request as Hadoop's client does."""
    scheme = "http" if access.truststore is None else "https"
    token = token or encode(access.credential, ENCRYPTED_KIND, "localhost:9871")
    url = f"{scheme}://{access.address}/webhdfs/v1/{access.job_id}/own/checkpoint?op={operation}&delegation={token}"
    context = None if access.truststore is None else ssl._create_unverified_context()
    with urllib.request.urlopen(urllib.request.Request(url, method=method), context=context, timeout=30) as reply:
        return dict(json.load(reply))


@pytest.mark.parametrize("encrypts", [False, True])
def test_it_keeps_a_checkpoint_below_the_warm_ups_directory(tmp_path: Path, encrypts: bool) -> None:
    with serve_state(tmp_path / "state", encrypts=encrypts) as access:
        assert ask(access, "PUT", "MKDIRS") == {"boolean": True}
        assert "FileStatus" in ask(access, "GET", "GETFILESTATUS")
        assert access.uri == f"{'swebhdfs' if encrypts else 'webhdfs'}://localhost/{access.job_id}/own"
    assert (tmp_path / "state" / "storage" / access.job_id / "checkpoint").is_dir()


def test_it_serves_nobody_else(tmp_path: Path) -> None:
    with serve_state(tmp_path / "state", encrypts=False) as access, pytest.raises(urllib.error.HTTPError):
        ask(access, "PUT", "MKDIRS", token=encode("f" * 64, ENCRYPTED_KIND, "localhost:9871"))


def test_hadoops_client_finds_it_without_the_environment_of_its_process(tmp_path: Path) -> None:
    with serve_state(tmp_path / "state", encrypts=True) as access:
        settings = access.settings()
    assert access.address in settings.values()
    assert settings["spark.hadoop.ssl.client.truststore.location"] == str(access.truststore)
    assert not any("${env." in value for value in settings.values())


def test_its_port_is_free_again_at_the_end(tmp_path: Path) -> None:
    with serve_state(tmp_path / "state", encrypts=False) as access:
        pass
    with pytest.raises(urllib.error.URLError):
        ask(access, "GET", "GETFILESTATUS")
