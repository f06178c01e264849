"""Opens a daemon's TLS, and renews the certificate that the cluster's own CA has issued."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.http.security import is_loopback
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.security import ENCRYPTION, INSECURE_NETWORK, TLS_CA, TLS_CERTIFICATE, TLS_KEY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, InvalidInput
from emberkeep.base.tls.links import TlsLinks

log = structlog.get_logger(__name__)

RENEWAL_INTERVAL = 3600.0  # seconds between checks whether the certificate must be renewed
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - these name no host


def encrypts(configuration: Configuration) -> bool:
    """True if the cluster's links are encrypted."""
    return configuration[ENCRYPTION] == "tls"


def announced_ca(configuration: Configuration, layout: StateLayout) -> str:
    """Return the file with the CAs by which callers verify a daemon; "" if the cluster does not encrypt."""
    return layout.tls_files.ca if encrypts(configuration) else ""


@dataclass(frozen=True)
class NodeTls:
    """The TLS of one daemon, which other processes reach at ``hosts``.

    ``directory`` has the cluster's own CA and what it has issued; None if others issue the certificates.
    """

    links: TlsLinks
    hosts: tuple[str, ...]
    directory: Path | None

    def expires_ms(self) -> int | None:
        """Return when the certificate expires (Unix ms); None if it cannot be read now."""
        from emberkeep.base.tls.authority import read_certificate

        try:
            return round(read_certificate(Path(self.links.files.certificate)).expires.timestamp() * 1000)
        except EmberkeepError as error:
            log.warning("cannot read the certificate", reason=error.message)
            return None

    async def keep(self) -> None:
        """Renew the certificate whenever that is due, until cancelled. Certificates that others issue are only read."""
        while True:
            await asyncio.sleep(RENEWAL_INTERVAL)
            try:
                expires = await asyncio.to_thread(self._renewed)
            except (EmberkeepError, OSError) as error:
                log.error("cannot renew the certificate, trying again", reason=str(error))
            else:
                if expires - datetime.datetime.now(datetime.UTC) < datetime.timedelta(days=14):
                    log.warning("the certificate expires soon", path=self.links.files.certificate, expires=str(expires))

    def _renewed(self) -> datetime.datetime:
        from emberkeep.base.tls.authority import read_certificate

        if self.directory is None:
            return read_certificate(Path(self.links.files.certificate)).expires
        return _ensure(self.directory, self.hosts)


def check_unencrypted(configuration: Configuration, *addresses: str) -> None:
    """Refuse to send the token unencrypted beyond loopback, unless that is permitted. Raises InvalidInput.

    ``addresses``: those at which other processes reach this one, and those that it connects to.
    """
    if encrypts(configuration) or configuration[INSECURE_NETWORK]:
        return
    for address in addresses:
        if not is_loopback(address.strip("[]").lower()):
            raise InvalidInput(
                f"{address or 'all addresses'}: other machines are reached from there, but {ENCRYPTION.key} is none",
                field=ENCRYPTION.key,
                hint=f"remove {ENCRYPTION.key}, and give each machine a certificate (`emberkeep security init`); "
                f"{INSECURE_NETWORK.key} permits the start without encryption",
            )


def open_tls(configuration: Configuration, layout: StateLayout, *hosts: str, founds: bool) -> NodeTls | None:
    """Return the TLS of a daemon that is reached at ``hosts``; None if the cluster does not encrypt. Blocks.

    Unless other certificates are configured, create what is missing: the cluster's CA, and a certificate for ``hosts``.
    ``founds``: this process may make the CA even if other machines connect to it. If each machine of a cluster made its
    own CA, no machine would trust another.

    Raises InvalidInput (settings), Fatal or Unavailable (files).
    """
    if not encrypts(configuration):
        return None
    may_make_ca = founds or all(is_loopback(host.strip("[]").lower()) for host in hosts)
    called = tuple(host for host in dict.fromkeys(hosts) if host not in _ANY_ADDRESS)
    own = (TLS_CERTIFICATE, TLS_KEY, TLS_CA)
    if not any(configuration[option] for option in own):
        _ensure(layout.tls, called, may_make_ca=may_make_ca)
        return NodeTls(TlsLinks(layout.tls_files, mutual=True), called, layout.tls)
    for option in own:
        if not configuration[option]:
            raise InvalidInput(
                f"{option.key} is empty, but other certificates are configured",
                field=option.key,
                hint=f"set {', '.join(each.key for each in own)}; or none of them, to use the cluster's own CA",
            )
    return NodeTls(TlsLinks(layout.tls_files, mutual=True), called, None)


def _ensure(directory: Path, hosts: tuple[str, ...], *, may_make_ca: bool = True) -> datetime.datetime:
    """Make sure that there is a certificate, see ``CertificateAuthority.ensure``. Return when it expires."""
    from emberkeep.base.tls.authority import CertificateAuthority

    certificate = CertificateAuthority(directory).ensure(hosts, may_make_ca=may_make_ca)
    if certificate.is_new:
        log.info("issued a certificate", directory=str(directory), hosts=sorted(certificate.hosts))
    return certificate.expires
