"""``emberkeep token``: what it prints, where, and its exit codes, against the real API."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.cli.application import main
from tests.unit.rest.served_tokens import ServedTokens
from tests.unit.rest.server import TOKEN

pytestmark = pytest.mark.req("SEC-11")

Output = pytest.CaptureFixture[str]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedTokens]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with ServedTokens(tmp_path / "cluster").serving() as served:
        monkeypatch.setenv("EMBERKEEP_URL", served.url)
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        yield served


def make(path: Path, capfd: Output, *words: str) -> tuple[str, ...]:
    """Make a token, put it into a file, and return the options that use it."""
    assert main(["token", "create", *words]) == 0
    text = capfd.readouterr().out
    path.write_text(text)
    path.chmod(0o600)
    return ("-D", f"security.token-file={path}")


@pytest.mark.usefixtures("served")
def test_only_the_token_is_on_standard_output(capfd: Output) -> None:
    assert main(["token", "create", "ci", "--role", "submitter", "--expires", "30d"]) == 0
    out, err = capfd.readouterr()
    assert len(out.strip().split(".")) == 3
    assert "of 'ci', role submitter, is valid until" in err
    assert "shown this once" in err


@pytest.mark.usefixtures("served")
def test_its_holder_uses_it_in_a_file(capfd: Output, tmp_path: Path) -> None:
    options = make(tmp_path / "ana", capfd, "ana", "--role", "viewer", "--namespace", "team")
    assert main(["token", "whoami", *options]) == 0
    assert capfd.readouterr().out == "ana, role viewer, namespace team\n"
    assert main(["token", "list", *options]) != 0
    assert "needs the role admin, and 'ana' has the role viewer" in capfd.readouterr().err


@pytest.mark.usefixtures("served")
def test_list_and_revoke(capfd: Output, tmp_path: Path) -> None:
    assert main(["token"]) == 0
    assert "no named tokens yet; make one with `emberkeep token create NAME --role ROLE`" in capfd.readouterr().err
    options = make(tmp_path / "ci", capfd, "ci", "--role", "operator")
    assert main(["token", "list"]) == 0
    header, row = capfd.readouterr().out.splitlines()
    assert header.split() == ["ID", "NAME", "ROLE", "NAMESPACE", "STATE", "CREATED", "EXPIRES"]
    assert row.split()[1:5] == ["ci", "operator", "-", "valid"]
    assert main(["token", "revoke", "ci"]) == 0
    assert "of 'ci' is revoked" in capfd.readouterr().err
    assert main(["token", "list", "-o", "json"]) == 0
    (listed,) = json.loads(capfd.readouterr().out)["tokens"]
    assert (listed["name"], listed["state"]) == ("ci", "revoked")
    assert main(["token", "whoami", *options]) != 0
    assert "was revoked at" in capfd.readouterr().err
    assert main(["token", "revoke", "nobody"]) == 4
    assert "there is no token 'nobody'" in capfd.readouterr().err


@pytest.mark.usefixtures("served")
def test_a_duration_that_is_none(capfd: Output) -> None:
    assert main(["token", "create", "ci", "--role", "viewer", "--expires", "soon"]) == 2
    assert "--expires soon" in capfd.readouterr().err
