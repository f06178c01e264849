"""Recognises callers by tokens (JWT) that an OpenID Connect issuer has signed.

Source: RFC 7519 (the token) and RFC 8725 (what to check). Which algorithm checks a signature is decided by the issuer's
key, not by the token.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jwt

from emberkeep.adapters.oidc.issuer_keys import IssuerKeys
from emberkeep.base.identity import Identity
from emberkeep.identities.oidc import ClaimRules, identity_of

_LEEWAY = 30  # seconds by which the clocks of issuer and cluster may differ
_MOST_CHARACTERS = 16 * 1024


class OidcCallers:
    """Accepts tokens of one issuer for one audience."""

    def __init__(
        self, keys: IssuerKeys, issuer: str, audience: str, rules: ClaimRules, now_ms: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._rules = rules
        self._now_ms = now_ms

    def identify(self, credential: str) -> Identity | str:
        """Return the token's holder, or the reason why the token is refused; "" if ``credential`` is not a JWT.

        Raises RetryLater while the issuer's keys are not known.
        """
        if credential.count(".") != 2 or len(credential) > _MOST_CHARACTERS or not credential.isascii():
            return ""
        try:
            header = jwt.get_unverified_header(credential)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return ""
        key_id = header.get("kid")
        key = self._keys.find(key_id if isinstance(key_id, str) else None)
        if key is None:
            return f"the issuer {self._issuer} has not published the key that signed the token"
        try:
            claims = self._verified(credential, key)
        except jwt.PyJWTError as error:
            return self._refusal(error, credential)
        return identity_of(claims, self._rules)

    def is_current(self, identity: Identity) -> bool:
        """True if the identity's token has not expired."""
        return self._now_ms() < identity.expires_ms

    def _verified(self, credential: str, key: jwt.PyJWK) -> dict[str, Any]:
        return jwt.decode(
            credential,
            key,
            algorithms=[key.algorithm_name],
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud"]},
        )

    def _refusal(self, error: jwt.PyJWTError, credential: str) -> str:
        if isinstance(error, jwt.ExpiredSignatureError):
            return f"the token of the issuer {self._issuer} has expired{_when(credential)}"
        if isinstance(error, jwt.InvalidAudienceError):
            return f"the token is not for {self._audience!r} (security.oidc.audience)"
        if isinstance(error, jwt.InvalidIssuerError):
            return f"the token was not issued by {self._issuer} (security.oidc.issuer)"
        return f"the token of the issuer {self._issuer} is not valid: {error}"


def _when(credential: str) -> str:
    """Return when a token expired, as text for a message. The token's signature has been checked before."""
    ended = jwt.decode(credential, options={"verify_signature": False})["exp"]
    try:
        return f", at {datetime.fromtimestamp(int(ended), UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""
