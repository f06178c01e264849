"""What queries have done in an attempt, added up over their batches."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.progress.records import ProgressRecord
from emberkeep.jobs.progress.totals import OTHER, QUERIES_COUNTED, QueryTotals, TotalsOfQueries


def report(number: int, query: str = "q", run: str = "1", **changes: object) -> ProgressRecord:
    """A batch that dropped 2 rows, and took 10 ms in total."""
    record = ProgressRecord(
        query_id=query,
        run_id=f"{query}-{run}",
        name="",
        batch_id=number,
        triggered_ms=1000 + number,
        duration_ms=10,
        phases={"addBatch": 7, "walCommit": 2, "triggerExecution": 10},
        late_rows=2,
    )
    return msgspec.structs.replace(record, **changes)


def test_every_batch_counts_once_whatever_is_looked_at_in_between() -> None:
    totals = TotalsOfQueries()
    totals.see({"q"}, [report(0), report(1)])
    totals.see({"q"}, [report(1), report(2), report(0)])
    assert totals.of("q") == QueryTotals(
        batches=3, duration_ms=30, late_rows=6, phases={"addBatch": 21, "walCommit": 6}
    )
    assert totals.of("another") is None


def test_batches_count_when_the_clock_was_set_back() -> None:
    totals = TotalsOfQueries()
    totals.see({"q"}, [report(0), report(1, triggered_ms=5), report(2, triggered_ms=6)])
    totals.see({"q"}, [report(2, triggered_ms=6), report(3, triggered_ms=7)])
    found = totals.of("q")
    assert found is not None
    assert found.batches == 4


def test_a_query_that_waits_does_nothing() -> None:
    totals = TotalsOfQueries()
    totals.see({"q"}, [report(0, phases={"latestOffset": 3, "triggerExecution": 4})])
    assert totals.of("q") == QueryTotals()


def test_a_query_that_is_started_again_continues_to_count() -> None:
    totals = TotalsOfQueries()
    totals.see({"q"}, [report(5)])
    totals.see(set(), [])
    totals.see({"q"}, [report(0, run="2")])
    found = totals.of("q")
    assert found is not None
    assert found.batches == 2


def test_steps_that_are_not_known_have_one_name() -> None:
    totals = TotalsOfQueries()
    totals.see({"q"}, [report(n, phases={"addBatch": 1, f"step-{n}": 5}) for n in range(100)])
    found = totals.of("q")
    assert found is not None
    assert found.phases == {"addBatch": 100, OTHER: 500}


def test_queries_that_have_ended_make_room_and_others_stay() -> None:
    totals = TotalsOfQueries()
    names = [f"q{number}" for number in range(QUERIES_COUNTED)]
    totals.see(names, [report(0, name) for name in names])
    totals.see([*names, "more"], [report(0, "more")])
    assert totals.of("more") is None
    totals.see([*names[1:], "more"], [report(1, "more")])
    assert (totals.of("more"), totals.of("q0")) == (QueryTotals().plus(report(1, "more")), None)
