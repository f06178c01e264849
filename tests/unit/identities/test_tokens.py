"""Decisions about named tokens."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput
from emberkeep.base.identity import Identity, Role
from emberkeep.identities.model import NamedToken, NamedTokens, parse_namespace, parse_token_name
from emberkeep.identities.tokens import (
    MOST_TOKENS,
    REMEMBERED_MS,
    digest,
    is_current,
    issue,
    recognise,
    revoke,
    token_text,
)

pytestmark = pytest.mark.req("SEC-11")

NOW = 1_795_000_000_000
DAY = 86_400_000


def token(number: int, name: str = "ci", *, role: Role = Role.SUBMITTER, expires_ms: int = NOW + DAY) -> NamedToken:
    return NamedToken(
        id=f"id{number}", name=name, role=role, sha256=digest(f"s{number}"), created_ms=NOW, expires_ms=expires_ms
    )


def text(number: int) -> str:
    return token_text(f"id{number}", f"s{number}")


ONE = NamedTokens(tokens=(token(1),))


def test_it_is_found_by_its_text() -> None:
    assert recognise(ONE.tokens, text(1)) == token(1)
    assert token(1).identity == Identity("ci", Role.SUBMITTER)
    assert [token(1).is_valid(now) for now in (NOW, NOW + DAY - 1, NOW + DAY)] == [True, True, False]


@pytest.mark.parametrize("credential", ["", "ek", "ek.id1", "ek.id1.", "ek.id1.wrong", "ek.id2.s1", "id1.s1", "ek..s1"])
def test_anything_else_is_unknown(credential: str) -> None:
    assert recognise(ONE.tokens, credential) is None


def test_two_are_valid_during_a_rotation_and_no_third() -> None:
    both = issue(ONE, token(2), NOW)
    assert [recognise(both.tokens, text(number)) for number in (1, 2)] == [token(1), token(2)]
    with pytest.raises(Conflict, match="'ci' has 2 valid tokens: id1, id2"):
        issue(both, token(3), NOW)
    after, revoked = revoke(both, "id1", NOW)
    assert [each.id for each in revoked] == ["id1"]
    assert [each.id for each in issue(after, token(3), NOW).tokens] == ["id1", "id2", "id3"]
    assert [each.id for each in issue(both, token(3, "other"), NOW).tokens] == ["id1", "id2", "id3"]


def test_a_revoked_one_is_known_and_not_valid() -> None:
    after, revoked = revoke(ONE, "ci", NOW + 1000)
    assert recognise(after.tokens, text(1)) == revoked[0]
    assert not revoked[0].is_valid(NOW + 2000)
    assert revoke(after, "ci", NOW + 3000) == (after, ())
    with pytest.raises(Absent, match="there is no token 'nobody'"):
        revoke(after, "nobody", NOW)


def test_an_id_names_one_token_even_if_it_is_also_a_name() -> None:
    tokens = NamedTokens(tokens=(token(1), token(2, "id1")))
    _, revoked = revoke(tokens, "id1", NOW)
    assert [each.id for each in revoked] == ["id1"]


def test_ended_ones_are_forgotten_after_a_while() -> None:
    old = NamedTokens(tokens=(token(1, expires_ms=NOW - 1),))
    assert [each.id for each in issue(old, token(2), NOW).tokens] == ["id1", "id2"]
    assert [each.id for each in issue(old, token(2), NOW - 1 + REMEMBERED_MS).tokens] == ["id2"]


def test_their_number_is_bounded() -> None:
    many = NamedTokens(tokens=tuple(token(number, f"n{number}") for number in range(MOST_TOKENS)))
    with pytest.raises(Conflict, match="the most that a cluster keeps"):
        issue(many, token(MOST_TOKENS), NOW)


def test_an_identity_is_current_while_a_valid_token_gives_exactly_it() -> None:
    assert is_current(ONE.tokens, Identity("ci", Role.SUBMITTER), NOW)
    assert not is_current(ONE.tokens, Identity("ci", Role.ADMIN), NOW)
    assert not is_current(ONE.tokens, Identity("ci", Role.SUBMITTER, "team"), NOW)
    assert not is_current(ONE.tokens, Identity("ci", Role.SUBMITTER), NOW + DAY)


@pytest.mark.parametrize("name", ["", "cluster", "a b", "-x", "x" * 64, "a/b", "é", "a\n"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        parse_token_name(name)
    if name and name != "cluster":
        with pytest.raises(InvalidInput):
            parse_namespace(name)


def test_no_namespace_is_all_jobs() -> None:
    assert (parse_namespace(""), parse_namespace("team-a"), parse_token_name("ana@example.com")) == (
        "",
        "team-a",
        "ana@example.com",
    )
