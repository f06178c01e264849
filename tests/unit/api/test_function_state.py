"""The state of a user function comes back from a savepoint as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emberkeep.api.function_state import decode_state, encode_state
from emberkeep.base.errors import Fatal, InvalidInput


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\x00bytes",
        None,
        {"newest": None, "count": 2**70, "nested": [1, {"é": 0.5}]},
        {"largest": float("-inf"), "smallest": [float("inf"), None]},
        float("inf"),
        {"null": "null"},
    ],
)
@pytest.mark.req("END-10")
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    assert decode_state("function", encode_state("function", state)) == state


def test_a_number_that_is_none_comes_back_as_such() -> None:
    assert math.isnan(decode_state("function", encode_state("function", [float("nan")]))[0])


def test_what_json_has_is_written_as_in_earlier_releases() -> None:
    assert encode_state("function", {"newest": None}) == b'j{"newest":null}'


@pytest.mark.parametrize("damaged", [b"", b"x", b"j{", b"i{", b"i[Infinit]"])
def test_damaged_states_are_told(damaged: bytes) -> None:
    with pytest.raises(Fatal, match="the state of function in the savepoint is"):
        decode_state("function", damaged)


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(InvalidInput, match="snapshot_state of function returned a object"):
        encode_state("function", object())
