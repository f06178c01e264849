"""How long an open page waits before it asks again, run by Node.js where it is installed: browsers run that module."""

from __future__ import annotations

import pytest

from tests.unit.web.conftest import JavaScript


@pytest.mark.parametrize(
    ("untouched", "hearing", "expected"),
    [
        (0, "false", [3000, 3000, 5000, 10_000, 10_000]),
        (19_999, "false", [3000, 3000, 5000, 10_000, 10_000]),
        (20_000, "false", [5000, 5000, 5000, 10_000, 10_000]),
        (0, "true", [5000, 5000, 5000, 10_000, 10_000]),
    ],
)
def test_a_page_asks_less_often_the_longer_nothing_changes(
    javascript: JavaScript, untouched: int, hearing: str, expected: list[int]
) -> None:
    calm = [0, 12_000, 20_000, 40_000, 86_400_000]
    assert javascript(["pace"], f"{calm}.map((each) => pace.pauseAfter(each, {untouched}, {hearing}))") == expected


def test_an_idle_page_asks_six_times_a_minute(javascript: JavaScript) -> None:
    """After the first minute, in which it asks twice as often at most."""
    asked = """(() => {
      const times = [0];
      while (times.at(-1) < 120_000) times.push(times.at(-1) + pace.pauseAfter(times.at(-1), times.at(-1), false));
      return [60_000, 120_000].map((end) => times.filter((each) => each > end - 60_000 && each <= end).length);
    })()"""
    first, second = javascript(["pace"], asked)
    assert first <= 12
    assert second <= 6
