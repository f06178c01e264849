"""The credentials of drivers as HTTP ports check them, and as callers of drivers use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import aiohttp

from emberkeep.base.identity import AttemptScope, Identity, Role
from emberkeep.identities.attempts import AttemptCredentials

_MOST_KNOWN: Final = 1_000  # drivers


@dataclass(frozen=True)
class DriverAccess:
    """Drivers may use a port: its RPC as ``protocol.driver_messages`` says, and ``routes`` of their own jobs.

    ``routes``: pairs of method and declared pattern; each pattern names a job.
    """

    credentials: AttemptCredentials
    routes: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def identify(self, token: str) -> Identity | None:
        """Return the identity of the driver that holds ``token``; None if no driver does."""
        scope = self.credentials.scope_of(token)
        # The role is the least one; it opens nothing, because the routes of drivers are listed.
        return None if scope is None else Identity(f"driver of {scope}", Role.METRICS, attempt=scope)


class CalledDrivers:
    """How to call drivers: the token that each expects, and the certificate that it must show."""

    def __init__(self, credentials: AttemptCredentials) -> None:
        self._credentials = credentials
        self._known: dict[AttemptScope, tuple[dict[str, str], aiohttp.Fingerprint]] = {}

    def login(self, scope: AttemptScope) -> tuple[dict[str, str], aiohttp.Fingerprint]:
        """Return the headers and the expected certificate of a call to an attempt's driver.

        Repeated calls return the same objects, so that connections are reused.
        """
        known = self._known.get(scope)
        if known is None:
            from emberkeep.base.tls.seeded_certificate import seeded_certificate

            certificate = seeded_certificate(self._credentials.certificate_seed(scope))
            headers = {"Authorization": f"Bearer {self._credentials.token(scope)}"}
            known = headers, aiohttp.Fingerprint(certificate.fingerprint)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()  # refilled as drivers are called
            self._known[scope] = known
        return known
