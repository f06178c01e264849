"""Which part of the time the timeline and the plots show when they are zoomed and moved."""

from __future__ import annotations

import pytest

from tests.unit.web.conftest import JavaScript

ALL = "{ from: 100, to: 200 }"
PART = "{ from: 120, to: 140 }"


@pytest.mark.parametrize(
    ("expression", "span"),
    [
        (f"zoomed({ALL}, {ALL}, 2, 0.5, 1)", [125, 175]),
        (f"zoomed({ALL}, {ALL}, 2, 1, 1)", [150, 200]),
        (f"zoomed({PART}, {ALL}, 0.5, 0, 1)", [120, 160]),
        (f"zoomed({PART}, {ALL}, 0.5, 1, 1)", [100, 140]),
        (f"zoomed({PART}, {ALL}, 0.1, 0.5, 1)", None),
        (f"zoomed({PART}, {ALL}, 1000, 0, 5)", [120, 125]),
        (f"moved({PART}, {ALL}, 0.5, 1)", [130, 150]),
        (f"moved({PART}, {ALL}, -5, 1)", [100, 120]),
        (f"moved({ALL}, {ALL}, 0.5, 1)", None),
        (f"including({PART}, {ALL}, 130, 1)", [120, 140]),
        (f"including({PART}, {ALL}, 150, 1)", [140, 160]),
        (f"including({PART}, {ALL}, 199, 1)", [180, 200]),
        (f"including(null, {ALL}, 150, 1)", None),
        (f"ending({ALL}, 30)", [170, 200]),
        (f"ending({ALL}, 100)", None),
    ],
)
def test_a_span_stays_within_the_time_and_null_is_all_of_it(
    javascript: JavaScript, expression: str, span: list[float] | None
) -> None:
    assert javascript(["spans"], f"((one) => one && [one.from, one.to])(spans.{expression})") == span
