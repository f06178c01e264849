"""The driver's end of the encrypted connections from functions on executors."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from emberkeep.api.function_link import EncryptedLink, Link
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.tls.contexts import fingerprint, server_context


@dataclass(frozen=True)
class LinkEncryption:
    """``context``: with the driver's certificate. ``certificate``: its SHA-256, in hex."""

    context: ssl.SSLContext
    certificate: str

    def link(self, plain: Link) -> EncryptedLink:
        """Return a link with which workers accept this certificate only."""
        return EncryptedLink(plain.host, plain.port, plain.attempt, plain.secret, self.certificate)


def link_encryption(tls: TlsFiles | None) -> LinkEncryption | None:
    """Return the encryption with the driver's certificate; None without one. Raises Fatal (files cannot be used)."""
    return None if tls is None else LinkEncryption(server_context(tls), fingerprint(tls.certificate))
