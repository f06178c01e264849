"""Attempts are judged by what they have done: entries under a lease, and ticks that nothing holds back."""

from __future__ import annotations

import pytest

from campaign.processes.deeds import Deed, Ended, Rules, judge, read_deeds

RULES = Rules(lease=6.0, freeze=3.0)


def deed(attempt: int, at: float, what: str, number: int = 0, asked: float | None = None, pid: int = 0) -> Deed:
    return Deed(
        attempt=attempt,
        pid=pid or 100 + attempt,
        what=what,
        at=at,
        number=number,
        asked=at if asked is None else asked,
    )


def end(
    status: str = "FINISHED",
    *,
    shown: float | None = None,
    cancelled: bool = False,
    acknowledged: float | None = None,
    ran: float | None = None,
) -> Ended:
    return Ended(
        job_id="j", status=status, shown=shown, cancelled=cancelled, entries=2, acknowledged=acknowledged, ran=ran
    )


FIRST = [deed(1, 0, "began"), deed(1, 1, "tick"), deed(1, 2, "commit", 1)]
SECOND = [deed(2, 10, "began"), deed(2, 11, "tick"), deed(2, 12, "commit", 2), deed(2, 13, "ended")]


@pytest.mark.parametrize(
    ("deeds", "ended", "found"),
    [
        pytest.param([*FIRST, *SECOND], end(), "", id="one after the other"),
        pytest.param(
            [*FIRST, *SECOND, deed(1, 12.5, "commit", 3, asked=11)], end(), "committed entry 3", id="commits late"
        ),
        pytest.param([*FIRST, *SECOND, deed(1, 12.5, "commit", 3, asked=9)], end(), "", id="its commit was under way"),
        pytest.param(
            [*FIRST, *(deed(1, at, "tick") for at in range(3, 13)), *SECOND],
            end(),
            "it had not been stopped",
            id="works beside a newer one",
        ),
        pytest.param([*FIRST, *SECOND, deed(1, 10.5, "tick")], end(), "", id="was stopped, and goes on for a moment"),
        pytest.param(
            [*FIRST, *(deed(1, at, "tick") for at in range(9, 20)), *SECOND],
            end(),
            "has run again since 9.000",
            id="was stopped, and is not ended",
        ),
        pytest.param(
            [*FIRST, *SECOND, deed(2, 14, "tick", pid=7)], end(), "was run by 2 processes", id="a number used twice"
        ),
        pytest.param(FIRST, end(), "no attempt has reached its end", id="no end"),
        pytest.param(
            [*FIRST, *SECOND, deed(2, 12.5, "commit", 1)], end(), "an entry was committed twice", id="double entry"
        ),
        pytest.param(
            [*FIRST, *SECOND], end(shown=9.0), "attempt 2 began at 10.000, after its end was shown", id="runs again"
        ),
        pytest.param(FIRST, end("FAILED"), "it has ended as FAILED", id="failed"),
        pytest.param(FIRST, end("RUNNING"), "it has ended as RUNNING", id="never ends"),
        pytest.param(FIRST, end("CANCELED"), "it has ended as CANCELED", id="cancelled by nobody"),
        pytest.param(FIRST, end("CANCELED", cancelled=True), "", id="cancelled"),
        pytest.param(
            [*FIRST, *SECOND],
            end(cancelled=True, acknowledged=11.5),
            "it is FINISHED, and its script has ended after its cancellation was acknowledged at 11.500",
            id="a lost cancellation",
        ),
        pytest.param([*FIRST, *SECOND], end(cancelled=True, acknowledged=13.5), "", id="cancelled as it had ended"),
        pytest.param(
            FIRST,
            end("CANCELED", cancelled=True, acknowledged=1.0, ran=1.5),
            "it was shown as RUNNING at 1.500, after its cancellation was acknowledged at 1.000",
            id="a cancellation that took effect late",
        ),
        pytest.param(
            [*FIRST, *SECOND],
            end(cancelled=True, acknowledged=13.5, ran=14.0),
            "",
            id="shown as running once its script had ended",
        ),
    ],
)
def test_a_job(deeds: list[Deed], ended: Ended, found: str) -> None:
    violations, _ = judge(deeds, ended, RULES)
    assert len(violations) == bool(found), violations
    assert found in "".join(violations)


def test_an_attempt_that_was_stopped_and_went_on_is_counted() -> None:
    _, overlaps = judge([*FIRST, *SECOND, deed(1, 10.5, "tick")], end(), RULES)
    assert [(each.attempt, each.seconds) for each in overlaps] == [(1, 0.5)]


def test_an_attempt_that_was_cut_off_ends_soon_after_a_newer_one_has_begun() -> None:
    beside = [*FIRST, *(deed(1, at, "tick") for at in range(3, 13)), *SECOND]
    cut = Rules(lease=6.0, freeze=3.0, cut=((2.0, 8.0),))
    violations, overlaps = judge(beside, end(), cut)
    assert (violations, [each.seconds for each in overlaps]) == ([], [2])
    for longer, rules in (
        ([*beside, *(deed(1, at, "tick") for at in range(13, 20))], cut),
        (beside, Rules(lease=1.0, freeze=3.0, cut=((2.0, 7.0),))),
        (beside, Rules(lease=6.0, freeze=3.0, cut=((10.5, 11.0),))),
    ):
        assert len(judge(longer, end(), rules)[0]) == 1


def test_another_file_than_the_one_that_was_submitted() -> None:
    spoiled = Deed(attempt=1, pid=101, what="file", at=0.5, whole=False)
    violations, _ = judge([*FIRST, spoiled, *SECOND], end(), RULES)
    assert violations == ["job j: an attempt has found another file than the one that was submitted"]


def test_a_line_that_its_writer_did_not_finish_is_left_out() -> None:
    whole = b'{"attempt": 1, "pid": 3, "what": "tick", "at": 1.5}\n'
    assert read_deeds(whole + b'{"attempt": 1, "p') == [Deed(attempt=1, pid=3, what="tick", at=1.5)]
