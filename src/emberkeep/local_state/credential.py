"""Credentials for the state gateway: a process's job, attempt, allocation and user, signed with the node's secret.

``<job id>.<attempt>.<allocation id, or "driver">[.u<user id>].<HMAC-SHA256 of the text before it, in hex>``
"""

from __future__ import annotations

import hashlib
import hmac
import re

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import DRIVER, Caller

_DRIVER = "driver"
_CREDENTIAL = re.compile(r"([0-9a-f]{32})\.([0-9]{1,9})\.([0-9a-f]{32}|driver)(?:\.u([0-9]{1,10}))?\.([0-9a-f]{64})")


def credential(secret: bytes, caller: Caller) -> str:
    """Return the credential of one process. It is as secret as ``secret``: never log it."""
    claim = f"{caller.job_id}.{caller.attempt}.{caller.allocation_id or _DRIVER}"
    if caller.user_id is not None:
        claim += f".u{caller.user_id}"
    return f"{claim}.{_signature(secret, claim)}"


def caller_of(secret: bytes, text: str) -> Caller:
    """Return the caller that ``text`` proves.

    Raises InvalidInput if ``text`` is not a credential or was not signed with this secret. The message contains no part
    of ``text``.
    """
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise InvalidInput("this is not a credential of a state gateway", field="delegation")
    claim = text.rpartition(".")[0]
    if not hmac.compare_digest(match.group(5), _signature(secret, claim)):
        raise InvalidInput("this node's state gateway did not issue this credential", field="delegation")
    job_id, attempt, allocation, user_id = match.group(1, 2, 3, 4)
    return Caller(
        job_id=JobId(job_id),
        attempt=int(attempt),
        allocation_id=DRIVER if allocation == _DRIVER else AllocationId(allocation),
        user_id=None if user_id is None else int(user_id),
    )


def _signature(secret: bytes, claim: str) -> str:
    return hmac.new(secret, claim.encode(), hashlib.sha256).hexdigest()
