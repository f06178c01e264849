"""The TLS contexts of a daemon, which follow its certificate: the files are read again after each change.

Daemons show their node's certificate to servers, too; other clients have none.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from emberkeep.base.clock import since_boot
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal
from emberkeep.base.tls.contexts import client_context, load_certificate, server_context
from emberkeep.base.tls.shown_certificate import check_shown

log = structlog.get_logger(__name__)

_MOST_READS = 20  # of files that others replace
_RETRY_SECONDS = 60.0  # after files that cannot be used, unless they change before

_Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


class TlsLinks:
    """The contexts of one process. ``files`` are read at once, and again at the first handshake after a change.

    ``server`` proves this process to callers, ``client`` verifies the servers that it calls. If ``mutual``, ``client``
    shows the certificate to servers that ask for one, and ``server`` asks its callers: those that show none are let in,
    those whose certificate was not issued by the cluster's CA are not. Any thread may use ``client``.
    """

    def __init__(self, files: TlsFiles, *, mutual: bool = False) -> None:
        """Raises Fatal if a file cannot be read, certificate and key do not match, or servers would refuse them."""
        self.files = files
        self._mutual = mutual
        self._lock = threading.Lock()
        self._retry_at: float | None = None  # the files of ``_stamp`` cannot be used
        self._stamp, self._current = _read_whole(files, mutual=mutual)
        # Every handshake begins in these contexts, which pass it to the ones with the newest certificate.
        self.server = self._current.server
        self.server.sni_callback = self._choose
        self.client: ssl.SSLContext = _NewestContext(lambda: self._newest().client)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest().server

    def _newest(self) -> _Contexts:
        with self._lock:
            try:
                self._refresh()
            except Fatal as error:  # for example only one of two files is replaced so far
                self._retry_at = since_boot() + _RETRY_SECONDS
                log.warning("cannot use the renewed certificate, using the previous one", reason=error.message)
            return self._current

    def _refresh(self) -> None:
        """Read the files again if they have changed. Raises Fatal."""
        stamp = _stamp(self.files)
        if stamp == self._stamp and (self._retry_at is None or since_boot() < self._retry_at):
            return
        self._stamp = stamp
        self._stamp, self._current = _read_whole(self.files, mutual=self._mutual)
        self._retry_at = None
        log.info("using a renewed certificate", path=self.files.certificate)


class _NewestContext(ssl.SSLContext):
    """A client's context that passes each handshake to the newest one. It trusts no CA itself."""

    _newest: Callable[[], ssl.SSLContext]

    def __new__(cls, newest: Callable[[], ssl.SSLContext]) -> _NewestContext:
        self = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        self._newest = newest
        return self

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return self._newest().wrap_socket(*args, **options)

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self._newest().wrap_bio(*args, **options)


def _read_whole(files: TlsFiles, *, mutual: bool) -> tuple[_Stamp, _Contexts]:
    """Return contexts that use ``files``, none of which was replaced in the meantime, and the files' stamp.

    OpenSSL reads a file twice that has a certificate and its key. Another daemon of the node may replace the file
    between, because it needs a certificate for one more address. Raises Fatal.
    """
    for _ in range(_MOST_READS - 1):
        stamp = _stamp(files)
        try:
            contexts = _contexts(files, mutual=mutual)
        except Fatal:
            if _stamp(files) == stamp:
                raise
            continue
        if _stamp(files) == stamp:
            return stamp, contexts
    return _stamp(files), _contexts(files, mutual=mutual)


def _contexts(files: TlsFiles, *, mutual: bool) -> _Contexts:
    """Return contexts that use ``files`` as they are now. Raises Fatal."""
    server, client = server_context(files), client_context(files.ca)
    if mutual:
        load_certificate(client, files)
        # Callers are verified as servers are: the same CAs, and the same rules for certificates.
        server.load_verify_locations(files.ca)
        server.verify_flags = client.verify_flags
        server.verify_mode = ssl.CERT_OPTIONAL
        check_shown(files, server)
    return _Contexts(server, client)


def _stamp(files: TlsFiles) -> _Stamp:
    """Return a value that changes when a file is replaced."""
    stamps = []
    for path in dict.fromkeys((files.certificate, files.key, files.ca)):
        try:
            status = Path(path).stat()
        except OSError:
            stamps.append((0, 0))  # whoever reads the file learns why it cannot be read
        else:
            stamps.append((status.st_ino, status.st_mtime_ns))
    return tuple(stamps)
