"""The cluster's own CA, and the certificates that it issues.

The CA's key stays on the machine where the CA was made. Another machine gets a bundle: the CA's certificate, and a
certificate with its key.
"""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from emberkeep.base.configuration.layout import CA_FILE, NODE_FILE
from emberkeep.base.errors import Conflict, Fatal, InvalidInput
from emberkeep.base.files.durable import remove_leftovers, write_file
from emberkeep.base.files.errors import cannot_read, cannot_write
from emberkeep.base.files.private import make_private_durably

CA_KEY_FILE: Final = "ca.key"
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_CA_LIFE: Final = datetime.timedelta(days=3650)
_NODE_LIFE: Final = datetime.timedelta(days=365)
_RENEWED_BEFORE_END: Final = _NODE_LIFE / 3
_SKEW: Final = datetime.timedelta(hours=1)  # by which clocks may differ


@dataclass(frozen=True)
class NodeCertificate:
    """A certificate of a node.

    ``hosts`` are the names and addresses that it proves. ``is_new``: the call that returns it has issued it.
    """

    hosts: frozenset[str]
    expires: datetime.datetime
    is_new: bool = False

    @property
    def is_due(self) -> bool:
        """True if it is time to renew the certificate."""
        return self.expires - _now() < _RENEWED_BEFORE_END


class CertificateAuthority:
    """The certificates in one directory (mode 0700). Several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca, self._ca_key, self._node = (directory / name for name in (CA_FILE, CA_KEY_FILE, NODE_FILE))

    def ensure(self, hosts: Iterable[str], *, may_make_ca: bool = True) -> NodeCertificate:
        """Return a certificate that is not due for renewal and proves ``hosts``; make what is missing.

        Without the CA's key, return the certificate as it is. ``may_make_ca``: make a CA if none exists. Blocks.

        Raises Fatal (a file cannot be read or written, a certificate is missing), InvalidInput (a host).
        """
        wanted = frozenset(_checked(host) for host in hosts) | frozenset(LOOPBACK_NAMES)
        with self._lock():
            if not self._ca.exists() and not self._node.exists():
                if not may_make_ca:
                    raise Fatal(
                        f"this machine has no certificate of the cluster in {self._directory}, which other machines "
                        "need to prove it",
                        hint="run `emberkeep security init` on the first machine of the cluster, and copy a bundle "
                        "from there to each other one (`emberkeep security bundle`)",
                    )
                self._make_authority()
            found = read_certificate(self._node) if self._node.exists() else None
            if not self._ca_key.exists():
                return self._as_it_is(found, wanted)
            if found is not None and wanted <= found.hosts and not found.is_due:
                return found
            hosts = wanted if found is None else wanted | found.hosts
            write_file(self._node, self._issue(hosts))
            return dataclasses.replace(read_certificate(self._node), is_new=True)

    def bundle(self, target: Path, hosts: Iterable[str]) -> NodeCertificate:
        """Write the files that another machine with these ``hosts`` needs to ``target``. Blocks.

        Raises Conflict (``target`` has other files), Fatal (no CA here), InvalidInput (a host).
        """
        names = frozenset(_checked(host) for host in hosts) | frozenset(LOOPBACK_NAMES)
        with self._lock():
            if not self._ca_key.exists():
                raise Fatal(
                    f"the key of the cluster's CA, {self._ca_key}, does not exist",
                    hint="run this command on the machine where `emberkeep security init` was run, or run that first",
                )
            try:
                make_private_durably(target)
                for name in (CA_FILE, NODE_FILE):
                    remove_leftovers(target / name)  # of a call that has not ended
                if any(entry.name not in (CA_FILE, NODE_FILE) for entry in target.iterdir()):
                    raise Conflict(f"{target} contains other files", hint="name a directory of its own")
            except OSError as error:
                raise cannot_write(target, error) from error
            write_file(target / CA_FILE, _read(self._ca))
            write_file(target / NODE_FILE, self._issue(names))
            return read_certificate(target / NODE_FILE)

    def _as_it_is(self, found: NodeCertificate | None, wanted: frozenset[str]) -> NodeCertificate:
        hint = (
            f"make a bundle with `emberkeep security bundle` on the machine that has {CA_KEY_FILE}, and copy its files"
        )
        if found is None:
            raise Fatal(f"{self._node} does not exist", hint=f"{hint} to {self._directory}")
        if missing := sorted(wanted - found.hosts):
            raise Fatal(f"the certificate {self._node} does not prove {', '.join(missing)}", hint=hint)
        return found

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Emberkeep cluster CA {os.urandom(4).hex()}")])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key(), _CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        # The key comes first: a crash between the two leaves a directory in which the next call starts again.
        write_file(self._ca_key, _key_pem(key))
        write_file(self._ca, certificate.public_bytes(serialization.Encoding.PEM))

    def _issue(self, hosts: frozenset[str]) -> bytes:
        """Return a new key and its certificate. Raises Fatal."""
        ca, ca_key = self._authority()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Emberkeep node")])
        certificate = (
            _builder(name, ca.subject, key.public_key(), _NODE_LIFE)
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + _key_pem(key)

    def _authority(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        try:
            ca = x509.load_pem_x509_certificate(_read(self._ca))
            key = serialization.load_pem_private_key(_read(self._ca_key), password=None)
        except (ValueError, TypeError) as error:
            raise Fatal(f"the cluster's CA in {self._directory} is damaged: {error}", hint=_NEW_CA_HINT) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
            raise Fatal(f"{self._ca} and {self._ca_key} do not belong together", hint=_NEW_CA_HINT)
        return ca, key

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process at a time change the directory, which is created if needed. Raises Fatal."""
        try:
            make_private_durably(self._directory)
            status = self._directory.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise Fatal(
                    f"{self._directory} belongs to another user or can be used by others",
                    hint=f"it holds keys: run `chmod 700 {self._directory}` as its owner",
                )
            descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot_write(self._directory, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


_HOST = re.compile(r"[a-z0-9._-]{1,253}")
_NEW_CA_HINT = "restore it from a backup; or end all processes of the cluster and delete it to get a new one"


def read_certificate(path: Path) -> NodeCertificate:
    """Return what the first certificate in ``path`` proves. Raises Fatal."""
    try:
        certificate = x509.load_pem_x509_certificate(_read(path))
        names = frozenset(proven_names(certificate))
    except (ValueError, x509.ExtensionNotFound) as error:
        raise Fatal(f"{path} holds no usable certificate: {error}", hint="check security.tls.certificate") from error
    return NodeCertificate(names, certificate.not_valid_after_utc)


def proven_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the names and addresses that a certificate proves. Raises ExtensionNotFound if it lists none."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _SKEW)
        .not_valid_after(_now() + life)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _checked(host: str) -> str:
    """Return a host as it is in a certificate. Raises InvalidInput."""
    plain = host.strip().strip("[]").lower()
    try:
        return str(ipaddress.ip_address(plain))
    except ValueError:
        pass
    if not _HOST.fullmatch(plain):
        raise InvalidInput(
            f"{host!r} is not a host name or an address",
            hint="for example node-1.example or 10.0.0.5; repeat the option for each host",
        )
    return plain


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from error


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
