"""From the claims of an OpenID Connect token to an identity."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Identity, Role
from emberkeep.identities.oidc import ClaimRules, RoleRule, identity_of, parse_role_rules

pytestmark = pytest.mark.req("SEC-11")

RULES = ClaimRules(
    "sub", "groups", parse_role_rules("everybody=viewer, data-eng=submitter@team-a, a=b=operator, ops=operator")
)


def claims(**given: Any) -> dict[str, Any]:
    return {"sub": "ana", "exp": 1_800_000_000, **given}


def test_rules_are_read_in_order() -> None:
    assert RULES.rules == (
        RoleRule("everybody", Role.VIEWER),
        RoleRule("data-eng", Role.SUBMITTER, "team-a"),
        RoleRule("a=b", Role.OPERATOR),
        RoleRule("ops", Role.OPERATOR),
    )
    assert parse_role_rules("") == parse_role_rules(" , ") == ()


@pytest.mark.parametrize("text", ["ops", "ops=", "=admin", "ops=root", "ops=admin@team", "ops=viewer@a b"])
def test_a_wrong_rule_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"security\.oidc\.roles"):
        parse_role_rules(text)


@pytest.mark.parametrize(
    ("groups", "role", "namespace"),
    [
        (["everybody"], Role.VIEWER, ""),
        (["everybody", "data-eng"], Role.SUBMITTER, "team-a"),
        (["ops", "data-eng"], Role.OPERATOR, ""),
        ("data-eng", Role.SUBMITTER, "team-a"),
        (["data-eng", 7, None], Role.SUBMITTER, "team-a"),
    ],
)
def test_the_most_powerful_matching_role_counts(groups: object, role: Role, namespace: str) -> None:
    found = identity_of(claims(groups=groups), RULES)
    assert found == Identity("oidc:ana", role, namespace, expires_ms=1_800_000_000_000)


@pytest.mark.parametrize("groups", [[], ["other"], None, 7, {"ops": 1}])
def test_without_a_matching_group_nobody_gets_in(groups: object) -> None:
    found = identity_of(claims(groups=groups), RULES)
    assert found == "no role is given to 'ana': the claim 'groups' has none of the values in security.oidc.roles"


@pytest.mark.parametrize("name", [None, "", 7, "a b", "a\nb", "x" * 129, "é"])
def test_a_name_that_cannot_be_shown_is_refused(name: object) -> None:
    found = identity_of(claims(sub=name, groups=["ops"]), RULES)
    assert isinstance(found, str)
    assert "security.oidc.name-claim" in found


def test_nobody_is_taken_for_the_cluster() -> None:
    found = identity_of(claims(sub="cluster", groups=["ops"]), RULES)
    assert isinstance(found, Identity)
    assert not found.is_cluster
