"""Decides which requests are over a quota: those of one identity, and those of one address without a valid login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from emberkeep.base.connections import network_of
from emberkeep.base.identity import Identity
from emberkeep.quotas.buckets import Buckets

REQUESTS_KEY: Final = "security.quota.requests-per-second"
UPLOADS_KEY: Final = "security.quota.upload-bytes-per-second"
BURST_SECONDS: Final = 10.0  # of the rate that may be used at once
FAILED_LOGINS: Final = 20  # of one address at once
FAILED_LOGINS_PER_SECOND: Final = 1 / 3


@dataclass(frozen=True)
class CallerLimits:
    """What one identity may use, on average. 0: no limit."""

    requests_per_second: int = 0
    upload_bytes_per_second: int = 0


@dataclass(frozen=True)
class Excess:
    """Why a request is refused: what was used too much, the key that sets the limit, and when to try again."""

    what: str
    key: str
    seconds: float


class Quotas:
    """What each identity has used in the last seconds, and the failed logins of each address.

    Daemons, drivers and anyone else who holds the cluster's own token have no quota.
    """

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        requests, uploads = limits.requests_per_second, limits.upload_bytes_per_second
        self._requests = Buckets(requests, requests * BURST_SECONDS) if requests else None
        self._uploads = Buckets(uploads, uploads * BURST_SECONDS) if uploads else None
        self._failed_logins = Buckets(FAILED_LOGINS_PER_SECOND, FAILED_LOGINS)

    def request(self, identity: Identity, now: float, *, uploads: bool) -> Excess | None:
        """Count a request and return None, or return why it is over a quota.

        ``uploads``: the request has a body. ``now`` is in seconds.
        """
        name, limits = identity.name, self._limits
        if _is_unlimited(identity):
            return None
        if self._requests is not None:
            if wait := self._requests.wait(name, now):
                what = f"has sent more than {limits.requests_per_second} requests a second"
                return Excess(what, REQUESTS_KEY, wait)
            self._requests.use(name, 1, now)
        if self._uploads is not None and uploads and (wait := self._uploads.wait(name, now)):
            what = f"has uploaded more than {limits.upload_bytes_per_second} bytes a second"
            return Excess(what, UPLOADS_KEY, wait)
        return None

    def received(self, identity: Identity, size: int, now: float) -> None:
        """Count the bytes of a request's body."""
        if self._uploads is not None and size and not _is_unlimited(identity):
            self._uploads.use(identity.name, size, now)

    def failed_login(self, address: str, now: float) -> float:
        """Count a failed login. Return for how many seconds this address's further failed logins are refused, or 0."""
        network = network_of(address)
        wait = self._failed_logins.wait(network, now)
        if not wait:
            self._failed_logins.use(network, 1, now)
        return wait


def _is_unlimited(identity: Identity) -> bool:
    """True for daemons and drivers: refusing one of their requests would cost a job its progress."""
    return identity.is_cluster or identity.attempt is not None
