"""Values of options at their limits."""

from __future__ import annotations

import pytest

from emberkeep.base.configuration.option_types import duration, size


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("500 ms", 0.5), ("1.5 h", 5400.0), ("36500d", 36_500 * 86_400.0)]
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["36500.1d", "99999999999999999999", "9" * 400, "9" * 400 + "d"])
def test_a_duration_that_no_time_can_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="at most 36500d"):
        duration(text)


@pytest.mark.parametrize("text", ["8589934592g", "9" * 30, "9" * 4000 + "g", "9" * 5000])
def test_a_size_that_no_message_can_hold_is_refused(text: str) -> None:
    assert size("8589934591g") < 2**63
    with pytest.raises(ValueError, match="at most 8589934591g"):
        size(text)
