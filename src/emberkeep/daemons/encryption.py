"""Opens a daemon's TLS, and renews the certificate that the cluster's own CA has issued."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options import ENCRYPTION, TLS_CA, TLS_CERTIFICATE, TLS_KEY
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
            except EmberkeepError as error:
                log.error("cannot renew the certificate", reason=error.message, hint=error.hint)
            else:
                if expires - datetime.datetime.now(datetime.UTC) < datetime.timedelta(days=14):
                    log.warning("the certificate expires soon", path=self.links.files.certificate, expires=str(expires))

    def _renewed(self) -> datetime.datetime:
        from emberkeep.base.tls.authority import Authority, read_certificate

        if self.directory is None:
            return read_certificate(Path(self.links.files.certificate)).expires
        return Authority(self.directory).ensure(self.hosts).expires


def open_tls(configuration: Configuration, layout: StateLayout, *hosts: str) -> NodeTls | None:
    """Return the TLS of a daemon that is reached at ``hosts``; None if the cluster does not encrypt. Blocks.

    Unless other certificates are configured, create what is missing: the cluster's CA, and a certificate for ``hosts``.
    Raises InvalidInput (settings), Fatal or Unavailable (files).
    """
    if not encrypts(configuration):
        return None
    called = tuple(host for host in dict.fromkeys(hosts) if host not in _ANY_ADDRESS)
    own = (TLS_CERTIFICATE, TLS_KEY, TLS_CA)
    if not any(configuration[option] for option in own):
        from emberkeep.base.tls.authority import Authority

        Authority(layout.tls).ensure(called)
        return NodeTls(TlsLinks(layout.tls_files), called, layout.tls)
    for option in own:
        if not configuration[option]:
            raise InvalidInput(
                f"{option.key} is empty, but other certificates are configured",
                field=option.key,
                hint=f"set {', '.join(each.key for each in own)}; or none of them, to use the cluster's own CA",
            )
    return NodeTls(TlsLinks(layout.tls_files), called, None)
