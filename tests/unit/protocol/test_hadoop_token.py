"""The form in which a state gateway's credential travels; test_hadoop_client.py shows that Hadoop reads it."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, KIND, decode, encode, with_credential


def test_a_token_is_what_hadoop_itself_writes() -> None:
    # Printed by Token.encodeToUrlString of hadoop-client-api 3.5.0.
    token = "AB5jY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2MSV0VCSERGUyBkZWxlZ2F0aW9uDjEyNy4wLjAuMTo5ODcw"
    assert encode("c" * 30, KIND, "127.0.0.1:9870") == token
    assert decode(token) == "c" * 30


@pytest.mark.parametrize("length", [0, 1, 127, 128, 255, 256, 2000])
def test_credentials_of_all_lengths_come_back(length: int) -> None:
    credential = "k" * length
    assert decode(encode(credential, ENCRYPTED_KIND, "localhost:9871")) == credential


def test_the_users_own_tokens_stay() -> None:
    tokens = with_credential("mine", "credential", ENCRYPTED_KIND).split(",")
    assert tokens[0] == "mine"
    assert tokens[1:] == [encode("credential", ENCRYPTED_KIND, f"{host}:9871") for host in ("127.0.0.1", "localhost")]
    assert with_credential("", "credential", ENCRYPTED_KIND) == ",".join(tokens[1:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "AB5j",
        "gP",
        "A" * 5000,
        encode("c", KIND, "s")[:-8],
        "AAAA",
        "AAFjEEhERlMgZGVsZWdhdGlvbgFz",
        "AAH_AQFr",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a token of a state gateway"):
        decode(text)
