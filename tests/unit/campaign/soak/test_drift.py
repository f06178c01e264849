"""Whether anything grows: quarters, ages, tolerance and resolution."""

import json
from collections import Counter

from campaign.soak.drift import Drift, Sample, drifts
from campaign.soak.figures import SoakFigures
from campaign.soak.report import data, section

MEMORY = "resident: memory MiB"


def life(values: list[float], *, age: float | None = None, value: str = MEMORY) -> list[Sample]:
    """Samples of a process, one each 10 s. ``age``: of each; None for one process that lives all the time."""
    return [
        Sample(10.0 * number, "leader", 10.0 * number if age is None else age, {value: each})
        for number, each in enumerate(values)
    ]


def only(samples: list[Sample]) -> Drift:
    (drift,) = drifts(samples)
    return drift


def test_the_last_quarter_is_compared_with_the_first() -> None:
    steady = only(life([100.0] * 40))
    assert (steady.first, steady.last, steady.grows) == (100.0, 100.0, False)
    grown = only(life([100.0] * 20 + [106.0] * 20))
    assert (grown.first, grown.last, grown.by_age, grown.grows) == (100.0, 106.0, False, True)
    assert round(grown.change, 3) == 0.06


def test_what_is_within_five_per_cent_or_cannot_be_told_apart_is_no_growth() -> None:
    assert not only(life([100.0] * 20 + [104.9] * 20)).grows
    assert not only(life([20.0] * 20 + [23.0] * 20)).grows, "3 MiB are less than what can be told apart"
    assert not only(life([50.0] * 20 + [40.0] * 20)).grows


def test_a_peak_does_not_count_and_a_slow_leak_does() -> None:
    assert not only(life([100.0] * 38 + [900.0] * 2)).grows
    assert only(life([100.0 + number for number in range(40)])).grows


def test_processes_that_are_replaced_are_compared_at_the_same_age() -> None:
    """In the first quarter a leader lives long, in the last ones are killed young: that hides nothing."""
    first = [Sample(10.0 * n, "leader", 10.0 * n, {MEMORY: 100.0 + n}) for n in range(20)]
    young = [Sample(600.0 + 10.0 * n, "leader", 10.0 * (n % 4), {MEMORY: 110.0 + n % 4}) for n in range(20)]
    drift = only(first + young)
    assert drift.by_age
    assert drift.first < 105.0
    assert drift.grows, "at the same age, the young ones need more"


def test_too_few_samples_show_nothing() -> None:
    assert drifts([]) == []
    assert drifts(life([1.0] * 8)) == []


def test_the_report_names_what_grows() -> None:
    figures = SoakFigures(runs=2, revisions=["abc"])
    leak = life([100.0] * 20 + [150.0] * 20)
    figures.took(Counter({"job": 5}), leak[:20], [], 1800.0)
    figures.took(Counter({"job": 4, "savepoint": 1}), leak[20:], ["job: it has | failed"], 1800.0)
    text = "\n".join(section(figures, 7))
    for part in (
        "| life | 1.00 hours of seed 7, in 2 runs |",
        "| values that grow | 1 of 1 |",
        "| job | 9 |",
        "| job: it has \\| failed |",
        "| leader | resident: memory MiB | 100.0 | 150.0 | +50.0% | as they are | **grows** |",
    ):
        assert part in text
    assert json.loads(json.dumps(data(figures)))["drifts"][0]["grows"]
