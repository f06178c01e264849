"""Certificates for tests: a cluster's CA in a directory, and what it proves."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from emberkeep.base.configuration.layout import CA_FILE, NODE_FILE, TlsFiles
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.links import TlsLinks


def files_in(directory: Path) -> TlsFiles:
    node = str(directory / NODE_FILE)
    return TlsFiles(node, node, str(directory / CA_FILE))


def cluster_tls(directory: Path, *hosts: str) -> TlsLinks:
    """TLS of a node of the cluster whose CA is in ``directory``, made if needed."""
    CertificateAuthority(directory).ensure(hosts)
    return TlsLinks(files_in(directory), mutual=True)


def node_tls(ca: Path) -> TlsLinks:
    """TLS of the node whose cluster has its CA in the file ``ca``: with it, a test calls as a daemon does."""
    return TlsLinks(files_in(ca.parent), mutual=True)


SERVERS = ExtendedKeyUsageOID.SERVER_AUTH
CLIENTS = ExtendedKeyUsageOID.CLIENT_AUTH
_VALID = datetime.timedelta(days=30)


def issue(
    directory: Path,
    target: Path,
    usages: Iterable[x509.ObjectIdentifier],
    valid: datetime.timedelta = _VALID,
    extension: x509.ExtensionType | None = None,
) -> TlsFiles:
    """Issue a certificate of the CA in ``directory`` for 127.0.0.1, as another tool may do it.

    ``usages``: the extended ones, none for a certificate without this extension. ``valid``: from a day ago.
    """
    ca = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + valid)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), False)
    )
    if wanted := list(usages):
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted), False)
    if extension is not None:
        builder = builder.add_extension(extension, False)
    certificate = builder.sign(signing, hashes.SHA256())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, form, plain)
    target.touch(0o600)
    target.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return TlsFiles(str(target), str(target), str(directory / CA_FILE))


def bundle_tls(directory: Path, target: Path, *hosts: str) -> TlsLinks:
    """TLS of another node of that cluster."""
    CertificateAuthority(directory).bundle(target, hosts)
    return TlsLinks(files_in(target), mutual=True)
