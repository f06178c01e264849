"""A job's timeline: bands of states, marks, and how long each start took."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.timeline import Band, BandKind, Recovery, timeline
from tests.unit.chronicle.occurrences import at, status

LIFE = [
    at(0, What.SUBMITTED, by="ana"),
    at(5, What.WAITING, message="the job waits for memory"),
    status(10, "INITIALIZING"),
    at(11, What.ATTEMPT_STARTED, attempt=1, task_manager="tm-1"),
    status(14, "RUNNING"),
    at(15, What.SLOTS_MISSING, attempt=1, message="the attempt waits for 2 slots"),
    at(18, What.SLOTS_COMPLETE, attempt=1),
    at(20, What.FIRST_RESULT, attempt=1, details={"seconds": "19.5", "began-ms": "0", "start": "cold"}),
    at(30, What.ATTEMPT_ENDED, attempt=1, details={"cause": "lost"}),
    status(30, "RESTARTING", reason="killed by signal 9"),
    status(33, "INITIALIZING", 2),
    at(33, What.ATTEMPT_STARTED, attempt=2, task_manager="tm-2", number=34),
    status(36, "RUNNING", 2),
]


def bands(stream: list[Occurrence]) -> list[tuple[BandKind, int, int | None]]:
    return [
        (band.kind, band.began_ms // 1000, None if band.ended_ms is None else band.ended_ms // 1000)
        for band in timeline(stream).bands
    ]


def test_states_become_bands_without_gaps() -> None:
    assert bands(LIFE) == [
        (BandKind.QUEUED, 0, 10),
        (BandKind.STARTING, 10, 14),
        (BandKind.RUNNING, 14, 15),
        (BandKind.WAITING, 15, 18),
        (BandKind.RUNNING, 18, 30),
        (BandKind.RESTARTING, 30, 33),
        (BandKind.STARTING, 33, 36),
        (BandKind.RUNNING, 36, None),
    ]


def test_bands_say_why_the_job_waits_and_restarts() -> None:
    reasons = {band.kind: band.reason for band in timeline(LIFE).bands if band.reason}
    assert reasons == {
        BandKind.QUEUED: "the job waits for memory",
        BandKind.WAITING: "the attempt waits for 2 slots",
        BandKind.RESTARTING: "killed by signal 9",
    }


def test_a_leader_that_finds_the_driver_running_changes_no_band() -> None:
    assert bands([*LIFE, at(40, What.REATTACHED, attempt=2)])[-1] == (BandKind.RUNNING, 36, None)


def test_the_end_of_the_job_ends_the_last_band() -> None:
    assert bands([*LIFE, status(50, "FINISHED", 2)])[-1] == (BandKind.RUNNING, 36, 50)


def test_a_state_that_is_repeated_does_not_split_its_band() -> None:
    assert timeline([status(1, "RUNNING"), status(5, "RUNNING")]).bands == (
        Band(kind=BandKind.RUNNING, began_ms=1000, ended_ms=None, attempt=1),
    )


def test_recoveries_say_how_long_each_start_took() -> None:
    first, second = timeline(LIFE).recoveries
    assert first == Recovery(
        attempt=1,
        cause="submission",
        began_ms=0,
        task_manager="tm-1",
        registered_ms=14_000,
        working_ms=19_500,
        start="cold",
    )
    assert (second.cause, second.began_ms, second.took_ms) == ("lost", 30_000, 6000)


def test_leaders_within_the_job_are_marks_and_others_are_not() -> None:
    ended = [*LIFE, status(50, "FINISHED", 2)]
    leaders = [at(second, What.LEADER_STARTED, job_id="") for second in (40, 60)]
    marks = [(mark.what, mark.time_ms) for mark in timeline(ended, leaders).marks]
    assert marks == [
        (What.ATTEMPT_STARTED, 11_000),
        (What.SLOTS_MISSING, 15_000),
        (What.ATTEMPT_ENDED, 30_000),
        (What.ATTEMPT_STARTED, 33_000),
        (What.LEADER_STARTED, 40_000),
    ]


def test_an_upgrade_and_the_way_back_are_marks() -> None:
    phases = ["STOPPING", "RETURNED"]
    stream = [*LIFE, *(at(40 + n, What.UPGRADE, details={"phase": phase}) for n, phase in enumerate(phases))]
    marks = [mark.details["phase"] for mark in timeline(stream).marks if mark.what == What.UPGRADE]
    assert marks == phases


def ended(second: int, number: int, attempt: int = 2) -> Occurrence:
    message = f"executor {number} ended on tm-1: {9 - number} of 9"
    return at(second, What.EXECUTORS_ENDED, attempt=attempt, message=message)


def test_a_lost_executor_and_what_follows_are_marks() -> None:
    kinds = [What.EXECUTORS_ENDED, What.SLOTS_MISSING, What.EXECUTORS_SCALED, What.SLOTS_RECLAIMED]
    stream = [*LIFE, *(at(40 + n, what, attempt=2) for n, what in enumerate(kinds))]
    assert [(mark.what, mark.time_ms) for mark in timeline(stream).marks if mark.time_ms >= 40_000] == [
        (what, 40_000 + 1_000 * n) for n, what in enumerate(kinds)
    ]


def test_executors_that_end_within_a_moment_have_one_mark() -> None:
    between = at(41, What.EXCEPTION, attempt=2, message="a task failed")
    stream = [*LIFE, ended(40, 1), between, *(ended(41 + n, 2 + n) for n in range(4)), ended(50, 6)]
    stream.append(ended(51, 7, attempt=3))
    marks = [(mark.time_ms, mark.message) for mark in timeline(stream).marks if mark.time_ms >= 40_000]
    newest = "; ".join(f"executor {number} ended on tm-1: {9 - number} of 9" for number in (3, 4, 5))
    assert marks == [
        (40_000, f"{newest}; 2 more before"),
        (41_000, "a task failed"),
        (50_000, "executor 6 ended on tm-1: 3 of 9"),
        (51_000, "executor 7 ended on tm-1: 2 of 9"),
    ]


def test_what_others_than_executors_do_is_told_one_by_one() -> None:
    stream = [*LIFE, *(at(40 + n, What.SAVEPOINT, attempt=2) for n in range(3))]
    assert sum(mark.what == What.SAVEPOINT for mark in timeline(stream).marks) == 3


def test_a_stream_whose_beginning_is_no_longer_kept_still_has_bands() -> None:
    assert bands(LIFE[6:])[0] == (BandKind.RESTARTING, 30, 33)


def test_nothing_makes_an_empty_timeline() -> None:
    assert timeline([]).bands == ()
