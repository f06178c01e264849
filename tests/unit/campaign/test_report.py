"""The report: distributions, tables, plots, and what was not found."""

import json
from pathlib import Path
from xml.etree import ElementTree

from campaign.load.figures import LoadFigures
from campaign.load.report import section as load_section
from campaign.progress import Failure, Figures, Hunt, Progress
from campaign.reliability_page import page
from campaign.report import write
from campaign.spark.figures import SparkFigures
from campaign.tables import distribution, durations

FIGURES = Figures(
    worlds=40,
    cpu_seconds=20.0,
    virtual_seconds=3_600.0,
    faults={"kill driver": 12, "flap link": 3},
    families={"mixed": 30, "steady": 10},
    results={"result FINISHED": 7},
    triples={"d|RUNNING|kill driver": 9},
    outages={"kill driver": {"0.00": 5, "2.00": 8, "4.00": 2, "-1.00": 1}, "flap link": {"0.00": 3}},
)


def test_a_distribution_counts_apart_what_was_unnoticed_and_what_was_overtaken() -> None:
    assert distribution(FIGURES.outages["kill driver"]) == {
        "measured": 15,
        "unnoticed": 5,
        "overtaken": 1,
        "least": 2.0,
        "median": 2.0,
        "p90": 4.0,
        "p99": 4.0,
        "largest": 4.0,
    }
    assert distribution(FIGURES.outages["flap link"]) == {"measured": 3, "unnoticed": 3, "overtaken": 0}


def test_what_took_no_time_counts_among_the_times_of_real_processes() -> None:
    assert durations({"0.0": 3, "0.1": 1}) == {
        "measured": 4,
        "least": 0.0,
        "median": 0.0,
        "p99": 0.1,
        "largest": 0.1,
    }
    assert durations({"0.1": 9}).get("p90") is None, "of nine, it would be the largest"
    assert durations({"0.1": 10})["p90"] == 0.1
    assert durations({}) == {"measured": 0}
    assert durations({"-1.00": 2}) == {"measured": 0}, "another fault came first"


def test_the_page_shows_the_times_of_all_that_was_measured() -> None:
    spark = SparkFigures(histories=1, answers={"kill driver": {"0.0": 15}}, streams={"kill driver": {"35.3": 15}})
    outages = {"bad store": {"0.00": 171, "7.60": 1}}
    text = page([Progress(seed=1, spark=spark, figures=Figures(worlds=1, outages=outages))], [], [], (0, 0))
    assert "| kill driver | 15 | 35.3 | 35.3 | 35.3 | 0.0 | 0.0 | 0.0 |" in text
    assert "| bad store | 172 | 0.0 | 0.0 | 7.6 |" in text


def test_load_without_a_lost_leader_has_a_report() -> None:
    figures = LoadFigures(histories=1, seconds=1.0, milliseconds={"list jobs|outside": {"5": 1}})
    assert "| list jobs | outside | 1 | 5 | 5 | 5 |" in load_section(figures, 1)


def test_the_report_has_what_was_tried_found_and_never_reached(tmp_path: Path) -> None:
    progress = Progress(seed=5, next=40, seconds=20.0, processes=2, revisions=["abc"], figures=FIGURES)
    progress.failures.append(Failure(17, "d: two attempts", "tests/regression/worlds/d-1.json"))
    hunts = [
        Hunt("half-a-lease", "jobs", 200, 9, "d: too early", 3.0),
        Hunt("lost", "slots", 50, None, "", 8.0),
        Hunt("torn", "base", 60, 3, "test_a_crash: torn", 2.0, "tests"),
        Hunt("stale", "rest", 4, 2, "job store: violated", 2.0, "histories"),
    ]
    progress.hunts = {hunt.name: hunt for hunt in hunts}
    path = write(tmp_path, progress, "make campaign SEED=5")
    text = path.read_text()
    for part in (
        "$ make campaign SEED=5",
        "| worlds | 40 of seed 5 |",
        "| worlds per second | 2.0 in 2 processes |",
        "| 17 | d: two attempts | tests/regression/worlds/d-1.json |",
        "| kill driver | 15 | 5 | 2.00 | 4.00 | 4.00 | 4.00 | 1 |",
        "Never reached: rule with fault",
        "3 of 4 were found within their budgets",
        "| half-a-lease | jobs | world 9 | 200 worlds | d: too early |",
        "| lost | slots | **not found** | 50 worlds |  |",
        "| torn | base | test 3 | 60 s | test_a_crash: torn |",
        "| stale | rest | history 2 | 4 histories | job store: violated |",
    ):
        assert part in text
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["simulation"]["recovery"]["kill driver"]["p90"] == 4.0
    assert "e|RUNNING|kill driver" in data["simulation"]["never"]
    assert "d|RUNNING|kill driver" not in data["simulation"]["never"]
    assert data["planted"][1]["found"] is None
    for plot in ("recovery.svg", "coverage.svg"):
        assert ElementTree.parse(tmp_path / plot).getroot().tag.endswith("svg")
