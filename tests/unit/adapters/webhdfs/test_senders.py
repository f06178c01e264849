"""Who sends a request: each valid credential is checked once, anything else each time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from emberkeep.adapters.webhdfs.errors import NotAllowed
from emberkeep.adapters.webhdfs.request import Senders
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.model import Caller
from emberkeep.protocol.encoding.hadoop_token import KIND, encode
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, EXECUTOR

SECRET = b"the node's"
VALID = credential(SECRET, EXECUTOR)


class Counting:
    """Identifies callers, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> Caller:
        self.asked.append(text)
        return caller_of(SECRET, text)


def shown(**parameters: str) -> web.Request:
    return cast("web.Request", SimpleNamespace(query=parameters))


def test_a_valid_credential_is_checked_once_in_each_form() -> None:
    identify = Counting()
    senders = Senders(identify)
    token = encode(VALID, KIND, "127.0.0.1:1")
    for _ in range(3):
        assert senders.of(shown(delegation=token)) == EXECUTOR
        assert senders.of(shown(delegation=token, **{"user.name": "root"})) == EXECUTOR
        assert senders.of(shown(**{"user.name": VALID})) == EXECUTOR
    assert identify.asked == [VALID, VALID]
    other = credential(SECRET, DRIVER_OF[1])
    assert senders.of(shown(**{"user.name": other})) == DRIVER_OF[1]


@pytest.mark.parametrize("wrong", [VALID[:-1], VALID.upper(), credential(b"another node's", EXECUTOR), "", "root"])
def test_what_is_not_valid_is_refused_each_time_also_beside_a_valid_one(wrong: str) -> None:
    identify = Counting()
    senders = Senders(identify)
    senders.of(shown(**{"user.name": VALID}))
    for _ in range(2):
        with pytest.raises(NotAllowed):
            senders.of(shown(**{"user.name": wrong}))
    assert identify.asked == [VALID, wrong, wrong]


def test_a_token_that_is_none_is_refused_whatever_the_name() -> None:
    senders = Senders(Counting())
    parameters: dict[str, Any] = {"delegation": "no token", "user.name": VALID}
    for _ in range(2):
        with pytest.raises(NotAllowed):
            senders.of(shown(**parameters))
