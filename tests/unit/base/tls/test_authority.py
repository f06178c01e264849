"""The cluster's own CA: what it makes, issues again, bundles and refuses."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, InvalidInput
from emberkeep.base.tls import authority
from emberkeep.base.tls.authority import LOOPBACK_NAMES, CertificateAuthority, read_certificate

pytestmark = pytest.mark.req("SEC-9")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tls"


def test_a_ca_and_a_certificate_are_made_for_this_user_only(directory: Path) -> None:
    made = CertificateAuthority(directory).ensure(["Node-7.example", "10.0.0.7", "[fd00::7]"])
    assert made.hosts == {*LOOPBACK_NAMES, "node-7.example", "10.0.0.7", "fd00::7"}
    assert not made.is_due
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == dict.fromkeys(
        ("ca.pem", "ca.key", "node.pem", "lock"), 0o600
    )
    ca = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    node = x509.load_pem_x509_certificate((directory / "node.pem").read_bytes())
    node.verify_directly_issued_by(ca)
    assert isinstance(node.public_key(), ec.EllipticCurvePublicKey)
    assert not node.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_good_certificate_is_kept(directory: Path) -> None:
    CertificateAuthority(directory).ensure(["a"])
    before = (directory / "node.pem").read_bytes()
    assert CertificateAuthority(directory).ensure(["a"]).hosts == {*LOOPBACK_NAMES, "a"}
    assert (directory / "node.pem").read_bytes() == before


def test_the_processes_of_a_node_share_a_certificate_that_proves_all_of_them(directory: Path) -> None:
    CertificateAuthority(directory).ensure(["127.0.0.2"])
    assert CertificateAuthority(directory).ensure(["127.0.0.3"]).hosts == {*LOOPBACK_NAMES, "127.0.0.2", "127.0.0.3"}


def test_a_certificate_that_ends_soon_is_issued_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(authority, "_NODE_LIFE", timedelta(days=30))
        assert CertificateAuthority(directory).ensure(["a"]).is_due
    ca = (directory / "ca.pem").read_bytes()
    renewed = CertificateAuthority(directory).ensure(["b"])
    assert not renewed.is_due
    assert renewed.hosts >= {"a", "b"}
    assert (directory / "ca.pem").read_bytes() == ca


def test_a_bundle_is_all_that_another_machine_needs(directory: Path, tmp_path: Path) -> None:
    CertificateAuthority(directory).ensure(["a"])
    target = tmp_path / "bundle"
    CertificateAuthority(directory).bundle(target, ["node-2"])
    assert {path.name for path in target.iterdir()} == {"ca.pem", "node.pem"}
    before = (target / "node.pem").read_bytes()
    assert CertificateAuthority(target).ensure(["node-2"]).hosts == {*LOOPBACK_NAMES, "node-2"}
    assert (target / "node.pem").read_bytes() == before
    with pytest.raises(Fatal, match="does not prove node-3") as caught:
        CertificateAuthority(target).ensure(["node-3"])
    assert "emberkeep security bundle" in str(caught.value.hint)


def without_ca_key(directory: Path) -> None:
    (directory / "ca.key").unlink()


def without_certificate(directory: Path) -> None:
    (directory / "ca.key").unlink()
    (directory / "node.pem").unlink()


def with_a_foreign_key(directory: Path) -> None:
    CertificateAuthority(directory.parent / "other").ensure([])
    (directory / "ca.key").write_bytes((directory.parent / "other" / "ca.key").read_bytes())


def with_a_damaged_ca(directory: Path) -> None:
    (directory / "ca.pem").write_text("nothing")


def open_to_others(directory: Path) -> None:
    directory.chmod(0o755)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_ca_key, "does not prove new"),
        (without_certificate, "does not exist"),
        (with_a_foreign_key, "do not belong together"),
        (with_a_damaged_ca, "damaged"),
        (open_to_others, "can be used by others"),
    ],
)
def test_what_is_missing_or_damaged_is_named(directory: Path, damage: Callable[[Path], None], message: str) -> None:
    CertificateAuthority(directory).ensure([])
    damage(directory)
    with pytest.raises(EmberkeepError, match=message) as caught:
        CertificateAuthority(directory).ensure(["new"])
    assert caught.value.hint


def test_a_bundle_replaces_no_other_files_and_needs_the_ca(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="emberkeep security init"):
        CertificateAuthority(directory).bundle(tmp_path / "bundle", [])
    CertificateAuthority(directory).ensure([])
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine").touch()
    with pytest.raises(Conflict, match="contains other files"):
        CertificateAuthority(directory).bundle(tmp_path / "home", [])


@pytest.mark.parametrize("host", ["", "a b", "http://a", "*.example", "a:80", "ä", "x" * 300, "a,b", "?a"])
def test_what_names_no_host_is_refused(directory: Path, host: str) -> None:
    with pytest.raises(InvalidInput, match="not a host name"):
        CertificateAuthority(directory).ensure([host])


def test_processes_that_start_together_agree_on_one_ca(directory: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from emberkeep.base.tls.authority import CertificateAuthority\n"
        "CertificateAuthority(Path(sys.argv[1])).ensure([sys.argv[2]])"
    )
    started = [subprocess.Popen([sys.executable, "-c", script, str(directory), f"10.0.0.{n}"]) for n in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    assert read_certificate(directory / "node.pem").hosts == {*LOOPBACK_NAMES, *(f"10.0.0.{n}" for n in range(4))}
