"""States of functions on executors that wait for an instance."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.spark.functions.waiting_states import WaitingStates, numbered

KEPT = {
    "counter@0": b"1",
    "counter@1": b"2",
    "sink": b"of a function in the driver",
    "sink@north": b"of another one, to which the script has given this name",
}


def test_states_that_cannot_be_read_now_are_not_taken_for_none() -> None:
    """Otherwise functions would begin without them, and the next savepoint would be without them as well."""
    fails = True

    def restored() -> Mapping[str, bytes]:
        if fails:
            raise Fatal("cannot read the saved states of functions: Input/output error")
        return KEPT

    waiting = WaitingStates(restored)
    for _ in range(2):
        with pytest.raises(Fatal, match="Input/output error"):
            waiting.take("counter")
        with pytest.raises(Fatal, match="Input/output error"):
            waiting.all()
        assert waiting.names() == set()
    fails = False
    assert numbered(waiting.all()) == {"counter@0": b"1", "counter@1": b"2"}
    assert waiting.take("counter") == [b"1", b"2"]
    assert waiting.take("counter") == []
