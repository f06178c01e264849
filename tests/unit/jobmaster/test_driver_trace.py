"""The part of a recovery trace that a driver sees."""

from __future__ import annotations

import pytest

from emberkeep.jobmaster.driver_trace import DriverTrace
from emberkeep.jobmaster.ports import NO_TIMES, FirstTimes
from emberkeep.jobs.traces.recovery_trace import Milestone, TraceReport

ZERO, NOW, NOW_MS = 1000.0, 1010.0, 7_000_010_000  # ten seconds after the zero
FIRST_MS = 7_000_000_000  # the zero, on the clock of Spark's times


@pytest.mark.parametrize(
    ("times", "wanted", "expected"),
    [
        (NO_TIMES, 2, {}),
        (FirstTimes(jvm_ms=FIRST_MS + 500, context_ms=FIRST_MS + 1500), 2, {"jvm-started": 0.5, "context-begun": 1.5}),
        (FirstTimes(executors_ms=(FIRST_MS + 3000,)), 2, {"executor-registered": 3.0}),
        (
            FirstTimes(executors_ms=(FIRST_MS + 4000, FIRST_MS + 5000, FIRST_MS + 3000)),
            2,
            {"executor-registered": 3.0, "executors-registered": 4.0},
        ),
        (FirstTimes(executors_ms=(FIRST_MS + 3000,)), 0, {"executor-registered": 3.0}),
        (
            FirstTimes(query_ms=FIRST_MS + 6000, planned_ms=FIRST_MS + 7000, committed_ms=FIRST_MS + 9000),
            1,
            {"query-started": 6.0, "query-planned": 7.0, "batch-committed": 9.0},
        ),
        (FirstTimes(stage_ms=FIRST_MS + 2000), 1, {"stage-completed": 2.0}),
    ],
)
def test_what_spark_reports(times: FirstTimes, wanted: int, expected: dict[str, float]) -> None:
    trace = DriverTrace(ZERO)
    assert trace.see(times, wanted, NOW, NOW_MS) is bool(expected)
    assert trace.report(NOW) == TraceReport(age=10.0, milestones=expected)
    assert not trace.see(times, wanted, NOW + 2, NOW_MS + 2000), "the same again is no news"


def test_the_first_time_counts_and_is_not_asked_for_again() -> None:
    trace = DriverTrace(ZERO)
    assert Milestone.STAGE_COMPLETED in trace.missing()
    assert trace.note(Milestone.CONTEXT_UP, ZERO + 1)
    assert not trace.note(Milestone.CONTEXT_UP, ZERO + 2)
    trace.see(FirstTimes(stage_ms=FIRST_MS + 2000), 1, NOW, NOW_MS)
    trace.see(FirstTimes(stage_ms=FIRST_MS + 8000), 1, NOW, NOW_MS)
    assert trace.report(NOW).milestones == {"context-up": 1.0, "stage-completed": 2.0}
    assert Milestone.STAGE_COMPLETED not in trace.missing()


def test_a_jvm_that_ran_before_is_not_part_of_the_start() -> None:
    trace = DriverTrace(ZERO)
    assert not trace.see(FirstTimes(jvm_ms=FIRST_MS - 1), 1, NOW, NOW_MS)
    assert trace.report(NOW).milestones == {}
    assert Milestone.JVM_STARTED not in trace.missing()


def test_what_the_job_manager_knows_is_repeated() -> None:
    trace = DriverTrace(ZERO)
    trace.note(Milestone.REGISTERED, ZERO + 1)
    trace.add(TraceReport(milestones={"detected": -7.0, "registered": 0.9}, cause="lost", delay=4.0))
    trace.add(TraceReport(milestones={"process-started": -1.0}, cause="lost", delay=4.0, start="cold", why_cold="new"))
    assert trace.report(NOW) == TraceReport(
        age=10.0,
        milestones={"detected": -7.0, "process-started": -1.0, "registered": 1.0},
        cause="lost",
        delay=4.0,
        start="cold",
        why_cold="new",
    )
