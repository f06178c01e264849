"""Passes with which a browser's session goes on at the next leader, because sessions are in one process's memory.

A page gets a new pass with each reply. It is signed with a key that all JobManagers derive from the cluster's token. It
is good for a short time, and only at a leader of a later epoch than the one that wrote it.

``<base64url of the pass as JSON>.<HMAC-SHA256 of the text before it, in hex>``
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.derived_key import derived_key
from emberkeep.base.identity import CLUSTER, Identity, Role

VALID_MS = 5 * 60_000
_AHEAD_MS = 60_000  # the clocks of two JobManagers may differ by so much
_LABEL = b"emberkeep: passes of sessions, version 1"
_TEXT = re.compile(r"[A-Za-z0-9_-]{1,4000}={0,2}\.[0-9a-f]{64}")


class SessionPass(Compatible, frozen=True, kw_only=True):
    """What a leader says about one session.

    ``id``: random, each pass is used once. ``host``: name and port by which the browser reached the leader. ``epoch``:
    of that leader. Times are in Unix milliseconds; ``until_ms``: when the session ends in any case. The other fields
    are those of the session's ``Identity``.
    """

    id: str
    host: str
    epoch: int
    issued_ms: int
    until_ms: int
    name: str
    role: Role
    namespace: str = ""
    expires_ms: int = 0

    def identity(self) -> Identity:
        """Return the user of the session."""
        found = Identity(self.name, self.role, self.namespace, self.expires_ms)
        return CLUSTER if found == CLUSTER else found

    def refusal(self, epoch: int, now_ms: int) -> str:
        """Return why a leader of ``epoch`` does not take this pass; "" if it does."""
        if self.epoch >= epoch:
            return "the leader that wrote it still leads"
        if not self.issued_ms - _AHEAD_MS <= now_ms < self.expires_at_ms():
            return "it has expired"
        return ""

    def expires_at_ms(self) -> int:
        """Return when no leader takes this pass any more."""
        return min(self.issued_ms + VALID_MS, self.until_ms)


class SessionPasses:
    """Writes and reads passes. ``token``: the cluster's."""

    def __init__(self, token: str) -> None:
        self._key = derived_key(token, _LABEL)

    def written(self, session_pass: SessionPass) -> str:
        """Return the text of a pass, which ``read`` takes."""
        claim = base64.urlsafe_b64encode(msgspec.json.encode(session_pass)).decode()
        return f"{claim}.{self._signature(claim)}"

    def read(self, text: str) -> SessionPass | None:
        """Return the pass; None if no JobManager of this cluster has written it."""
        if _TEXT.fullmatch(text) is None:
            return None
        claim, _, signature = text.partition(".")
        if not hmac.compare_digest(signature, self._signature(claim)):
            return None
        try:
            return from_json(base64.urlsafe_b64decode(claim), SessionPass)
        except (binascii.Error, msgspec.DecodeError):
            return None  # written by a later release

    def _signature(self, claim: str) -> str:
        return hmac.digest(self._key, claim.encode(), "sha256").hex()
