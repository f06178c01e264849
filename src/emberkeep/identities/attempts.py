"""Credentials of drivers: each is good for one attempt of one job.

They are derived from the cluster's token. So a JobManager or a task manager checks a driver's token, and knows a
driver's certificate, without a stored list: after a change of leaders and after a restart, too. From its own
credentials, a driver learns neither the cluster's token nor the credentials of another attempt.

``ek-attempt.<job id>.<attempt>.<HMAC-SHA256 of the text before it, in hex>``

A driver also carries the namespace of its job, signed. It hands that claim to the task managers of its executors, which
start them as the user of that namespace: ``<namespace>.<HMAC-SHA256 of job id and namespace, in hex>``.
"""

from __future__ import annotations

import hmac
import re

from emberkeep.base.derived_key import derived_key
from emberkeep.base.identity import AttemptScope

_PREFIX = "ek-attempt"
_TOKEN = re.compile(rf"{_PREFIX}\.([0-9a-f]{{32}})\.([1-9][0-9]{{0,8}})\.([0-9a-f]{{64}})")
_TOKEN_LABEL = b"emberkeep: tokens of attempts, version 1"
_NAMESPACE_LABEL = b"emberkeep: namespaces of jobs, version 1"
_CERTIFICATE_LABEL = b"emberkeep: certificates of attempts, version 1"


class AttemptCredentials:
    """Derives and checks the credentials of attempts. ``token``: the cluster's."""

    def __init__(self, token: str) -> None:
        self._token_key = derived_key(token, _TOKEN_LABEL)
        self._certificate_key = derived_key(token, _CERTIFICATE_LABEL)
        self._namespace_key = derived_key(token, _NAMESPACE_LABEL)

    def token(self, scope: AttemptScope) -> str:
        """Return the bearer token of an attempt's driver, with which daemons also call that driver."""
        claim = _claim(scope)
        return f"{claim}.{self._signature(claim)}"

    def scope_of(self, token: str) -> AttemptScope | None:
        """Return the attempt that ``token`` proves; None if it proves none."""
        match = _TOKEN.fullmatch(token)
        if match is None or not hmac.compare_digest(match.group(3), self._signature(token.rpartition(".")[0])):
            return None
        return AttemptScope(match.group(1), int(match.group(2)))

    def certificate_seed(self, scope: AttemptScope) -> bytes:
        """Return 32 secret bytes from which the private key of an attempt's certificate is made."""
        return hmac.digest(self._certificate_key, _claim(scope).encode(), "sha256")

    def namespace_claim(self, job_id: str, namespace: str) -> str:
        """Return the text by which a job's driver proves the job's namespace to a task manager."""
        return f"{namespace}.{hmac.digest(self._namespace_key, f'{job_id}.{namespace}'.encode(), 'sha256').hex()}"

    def namespace_of(self, job_id: str, claim: str) -> str | None:
        """Return the job's namespace that ``claim`` proves; None if it proves none."""
        namespace = claim.rpartition(".")[0]
        expected = self.namespace_claim(job_id, namespace)
        return namespace if hmac.compare_digest(claim.encode(), expected.encode()) else None

    def _signature(self, claim: str) -> str:
        return hmac.digest(self._token_key, claim.encode(), "sha256").hex()


def _claim(scope: AttemptScope) -> str:
    return f"{_PREFIX}.{scope.job_id}.{scope.attempt}"
