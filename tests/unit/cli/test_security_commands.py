"""``emberkeep security``: what it makes, says and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.tls.authority import read_certificate
from emberkeep.cli.application import main

pytestmark = pytest.mark.req("SEC-9")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_ca_is_made_once_and_bundles_are_issued(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["security", "init", "--host", "jobmanager.example"]) == 0
    made = capsys.readouterr().out
    assert made.startswith("Directory:")  # and not with a line of a log
    assert "jobmanager.example" in made
    ca = (state / "tls" / "ca.pem").read_bytes()
    assert main(["security", "init"]) == 0
    assert main(["security", "bundle", "--host", "node-7", "--host", "10.0.0.7", str(tmp_path / "bundle")]) == 0
    assert {"node-7", "10.0.0.7"} <= read_certificate(tmp_path / "bundle" / "node.pem").hosts
    assert (tmp_path / "bundle" / "ca.pem").read_bytes() == (state / "tls" / "ca.pem").read_bytes() == ca
    output = capsys.readouterr()
    assert "PRIVATE KEY" not in output.out + output.err


def test_a_bundle_needs_the_ca_and_a_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["security", "bundle", str(tmp_path / "bundle")]) == 2
    assert "--host is missing" in capsys.readouterr().err
    assert main(["security", "bundle", "--host", "node-7", str(tmp_path / "bundle")]) == 1
    assert "emberkeep security init" in capsys.readouterr().err
