"""Turn the checked claims of an OpenID Connect token into an identity. Pure.

Source: OpenID Connect Core 1.0, section 2 (claims of a token). The signature, the issuer, the audience and the times
have been checked before, see ``adapters.oidc``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Identity, Role
from emberkeep.identities.model import parse_namespace

# Names of named tokens have no colon, so an issuer cannot name anybody like the holder of one.
NAME_PREFIX = "oidc:"
_NAME = re.compile("[!-~]{1,128}")
_LATEST = 253_402_214_400  # seconds: the year 9999
_RULE_FORM = "VALUE=ROLE or VALUE=ROLE@NAMESPACE"


@dataclass(frozen=True)
class RoleRule:
    """Whoever has ``value`` in the role claim gets ``role``, within ``namespace`` if that is not ""."""

    value: str
    role: Role
    namespace: str = ""


@dataclass(frozen=True)
class ClaimRules:
    """Which claims name the caller and its groups, and which role each group has."""

    name_claim: str
    role_claim: str
    rules: tuple[RoleRule, ...]


def parse_role_rules(text: str) -> tuple[RoleRule, ...]:
    """Parse "VALUE=ROLE[@NAMESPACE], …". Raises InvalidInput.

    >>> parse_role_rules("platform=admin, data-eng=submitter@team-a")[1]
    RoleRule(value='data-eng', role=<Role.SUBMITTER: 'submitter'>, namespace='team-a')
    """
    return tuple(_parse_rule(word.strip()) for word in text.split(",") if word.strip())


def _parse_rule(word: str) -> RoleRule:
    value, equals, right = word.rpartition("=")
    name, _, namespace = right.partition("@")
    if not equals or not value or name not in set(Role):
        raise InvalidInput(
            f"security.oidc.roles: {word[:80]!r} does not have the form {_RULE_FORM}",
            field="security.oidc.roles",
            hint=f"the roles are {', '.join(Role)}",
        )
    role = Role(name)
    if namespace and role in (Role.METRICS, Role.ADMIN):
        raise InvalidInput(
            f"security.oidc.roles: the role {name} concerns the whole cluster and has no namespace",
            field="security.oidc.roles",
        )
    return RoleRule(value, role, parse_namespace(namespace, "security.oidc.roles"))


def identity_of(claims: Mapping[str, Any], rules: ClaimRules) -> Identity | str:
    """Return the identity that the claims describe, or the reason why they describe none.

    If several rules match, the most powerful role counts, and of equal ones the first.
    """
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"the token has no usable name in its claim {rules.name_claim!r} (security.oidc.name-claim)"
    groups = _texts(claims.get(rules.role_claim))
    matching = [rule for rule in rules.rules if rule.value in groups]
    if not matching:
        return (
            f"no role is given to {name!r}: the claim {rules.role_claim!r} has none of the values in "
            "security.oidc.roles"
        )
    order = list(Role)
    best = max(matching, key=lambda rule: order.index(rule.role))
    return Identity(NAME_PREFIX + name, best.role, best.namespace, expires_ms=min(int(claims["exp"]), _LATEST) * 1000)


def _texts(claim: object) -> Sequence[str]:
    """Return the values of a claim that is a list, or one text."""
    if isinstance(claim, str):
        return (claim,)
    return [each for each in claim if isinstance(each, str)] if isinstance(claim, list) else ()
