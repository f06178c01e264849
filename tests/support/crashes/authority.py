"""The durable steps of a cluster's certificate authority, and of what machines and drivers get from it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography import x509

from emberkeep.adapters.webhdfs.encryption import seeded_encryption
from emberkeep.base.configuration.layout import CA_FILE, NODE_FILE, TlsFiles
from emberkeep.base.identity import AttemptScope
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.contexts import server_context
from emberkeep.daemons.taskmanager.attempt_files import write_attempt_files
from emberkeep.identities.attempts import AttemptCredentials
from tests.support.crashes.component import Component
from tests.support.crashes.recorded import Crash, RecordedFiles

_TLS = "state/emberkeep/tls"
_SECRET = "s" * 64
_SCOPE = AttemptScope(job_id="a" * 32, attempt=1)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_issued(node: Path, ca: Path) -> bool:
    """True if a node's certificate is of this CA, and its key fits."""
    issuer = x509.load_pem_x509_certificate(ca.read_bytes())
    x509.load_pem_x509_certificate(node.read_bytes()).verify_directly_issued_by(issuer)
    server_context(TlsFiles(certificate=str(node), key=str(node), ca=str(ca)))
    return True


def live_authority(root: Path, files: RecordedFiles) -> None:
    authority = CertificateAuthority(root / _TLS)
    authority.ensure(("node-1",))
    files.mark(f"ca {_digest(root / _TLS / CA_FILE)}")
    authority.bundle(root / "bundle", ("node-2",))
    files.mark("bundled")
    authority.ensure(("node-1", "node-3"))
    files.mark("node-3")


def check_authority(crash: Crash) -> None:
    """A machine that has the bundle proves this CA: it must stay the cluster's own."""
    directory = crash.directory / _TLS
    authority = CertificateAuthority(directory)
    before = authority.ensure((), may_make_ca=not crash.marks)
    assert _is_issued(directory / NODE_FILE, directory / CA_FILE)
    for mark in crash.marks:
        if mark.startswith("ca "):
            assert _digest(directory / CA_FILE) == mark.removeprefix("ca "), "it is another CA"
    assert "node-3" in before.hosts or "node-3" not in crash.marks
    bundle = crash.directory / "bundle"
    if "bundled" in crash.marks:
        assert _is_issued(bundle / NODE_FILE, directory / CA_FILE)
    authority.bundle(bundle, ("node-2",))
    assert _is_issued(bundle / NODE_FILE, bundle / CA_FILE)
    assert _digest(bundle / CA_FILE) == _digest(directory / CA_FILE)
    assert {"node-1", "node-4"} <= authority.ensure(("node-1", "node-4")).hosts


def live_issued(root: Path, files: RecordedFiles) -> None:
    """Write what a task manager derives from secrets: the files of a driver, and the certificate of its gateway."""
    ca = root.with_name("ca.pem")
    ca.write_bytes(b"a CA")
    node = TlsFiles(certificate="", key="", ca=str(ca))
    for _ in range(2):
        write_attempt_files(root, _SCOPE, AttemptCredentials(_SECRET), node)
        files.mark("attempt")
        seeded_encryption(_SECRET, root / "gateway.pem", root / "truststore")
        files.mark("gateway")


def check_issued(crash: Crash) -> None:
    """What was given to processes that run is the same after a crash."""
    directory = crash.directory
    before = {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}
    assert "attempt" not in crash.marks or {"token", "driver.pem", "ca.pem"} <= before.keys()
    assert "gateway" not in crash.marks or {"gateway.pem", "truststore"} <= before.keys()
    ca = directory.with_name("again.pem")
    ca.write_bytes(b"a CA")
    write_attempt_files(directory, _SCOPE, AttemptCredentials(_SECRET), TlsFiles(certificate="", key="", ca=str(ca)))
    seeded_encryption(_SECRET, directory / "gateway.pem", directory / "truststore")
    for name, content in before.items():
        assert name == "truststore" or (directory / name).read_bytes() == content, f"{name} is another one"


COMPONENTS = (
    Component("certificate authority", "client", live_authority, check_authority),
    Component("derived credentials", "task manager", live_issued, check_issued),
)
