"""What is published of campaigns and measurements, and the page that is made of it."""

from pathlib import Path

import msgspec
import pytest

from campaign import published
from campaign.crashes.figures import ComponentFigures, CrashFigures, PairFigures
from campaign.load.figures import LoadFigures
from campaign.processes.figures import FailedHistory, ProcessFigures
from campaign.progress import Figures, Hunt, Progress
from campaign.reliability_page import Bench, BenchFigure, BenchSection, Finding, page
from campaign.soak.figures import SoakFigures
from campaign.spark.figures import SparkFigures

PROGRESS = Progress(
    seed=5,
    next=40,
    seconds=70.0,
    figures=Figures(worlds=40, faults={"freeze agent": 2}, outages={"freeze agent": {"2.00": 2}}),
    crashes=CrashFigures(
        components={"store": ComponentFigures("leader", {"clean": 3, "lost": 4}, 5, ())},
        pairs={"leader and driver": PairFigures((3, 4), 12, 12, 5, 60)},
        seconds=61.0,
    ),
    real=ProcessFigures(
        histories=2,
        seconds=119.0,
        faults={"kill leader": 1_200},
        operations={"submit: done": 7},
        entries=9,
        late=3,
        files=1_002,
        on_transfers={"all": 4, "receiving task manager": 3, "serving JobManager": 2},
        recoveries={"kill leader": {"1.50": 3}},
        failures=[FailedHistory(1, "one live attempt: 2|3", ".campaign/5/processes/history-1.json")],
    ),
    load=LoadFigures(
        histories=1,
        seconds=90.0,
        faults={"kill leader": 9},
        statuses={"200": 5_000},
        milliseconds={"read|outside": {"20": 99, "300": 1}, "read|during": {"2000": 1}},
    ),
    soak=SoakFigures(rounds=3, runs=1, seconds=1_800.0, problems=["the stream has failed"]),
    spark=SparkFigures(
        histories=1,
        seconds=300.0,
        faults={"kill leader": 4, "kill driver": 2},
        outputs={"windows into SQLite": 1},
        rows={"windows into SQLite": 1_000},
        streams={"kill driver": {"3.0": 2}},
        answers={"kill leader": {"2.5": 4}},
        revisions=["abc"],
    ),
    hunts={
        "half-a-lease": Hunt("half-a-lease", "jobs", 200, 9, "d: too early", 59.0),
        "lost": Hunt("lost", "slots", 50, None, "", 8.0),
    },
)
BENCH = Bench(
    format="emberkeep-bench",
    version=1,
    repetitions=3,
    machine={"cores": 2},
    sections=[
        BenchSection(
            name="flink",
            seconds=200.0,
            load_average=(0.25, 1.0),
            figures=(BenchFigure("killed → next checkpoint", "s", (31.0, 34.0), None, 32.5, 31.0, 34.0, None),),
        ),
        BenchSection(name="console", seconds=9.0, load_average=(0.0, 0.0), figures=()),
    ],
)


def test_the_page_has_what_was_tried_what_was_found_and_how_to_repeat_it() -> None:
    found = Finding("processes", "A stale read.", "unit/rest/serving/test_vouching.py", ("5/1",))
    text = page([PROGRESS], [BENCH], [found], (34, 78))
    for part in (
        "$ make campaign LEVELS=crashes SEED=5 MINUTES=2\n",
        "$ make campaign LEVELS=simulation SEED=5 MINUTES=2\n",
        "$ make campaign LEVELS=processes SEED=5 MINUTES=2\n",
        "$ make campaign LEVELS=spark SEED=5 MINUTES=5\n",
        "$ make campaign LEVELS=planted SEED=5 MINUTES=2\n",
        "$ make campaign LEVELS=load SEED=5 MINUTES=2\n",
        "$ make campaign LEVELS=soak SEED=5 MINUTES=30\n",
        "| processes | 5 | 2 histories, 1,200 faults of 10,000, 4 during BLOB transfers | "
        "7 operations, 9 entries, 1,002 files, 3 requests for attempts that were over | 1 |",
        "Of the faults with stub drivers, 4 have hit a BLOB on its way to a task manager.",
        "| receiving task manager | 3 |\n| serving JobManager | 2 |\n",
        "| load | 5 | 1 histories, 9 faults, 5,000 replies | p99 0.0 s outside of takeovers, p99 2.0 s during them |",
        "| soak | 5 | 3 rounds, 0.5 hours of 4 | 0 values, 0 grow | 1 |",
        "| soak | 5 | the stream has failed | **open** |",
        "list 34 promises, shown by 78 tests",
        "1 pairs of components: 12 of 12 crashes at once, 5 of 60 one after the other",
        "| spark | 5 | 1 histories, 6 faults of 1,000 | 1 outputs of 1,000 rows, 0 differ | 0 | abc |",
        "| kill leader | 1,200 | 4 |",
        "| processes | 5/1 | one live attempt: 2\\|3 | `unit/rest/serving/test_vouching.py` |",
        "| processes | A stale read. | `unit/rest/serving/test_vouching.py` |",
        "1 of 2 planted bugs were found within their budgets: 1 by worlds. Not found: `lost`.",
        "| `jobs` | 1 | 1 |  |  |",
        "| `slots` | 1 |  |  |  |",
        "| kill driver | 2 | 3.0 | – | 3.0 | – | – | – |",
        "| killed → next checkpoint | 2 | 32.50 | 31.00 | 34.00 | 0.2 … 1.0 |",
    ):
        assert part in text


def test_figures_from_before_transfers_were_counted_say_nothing_about_them() -> None:
    figures = msgspec.structs.replace(PROGRESS.real, late=0, files=0, on_transfers={})
    text = page([msgspec.structs.replace(PROGRESS, real=figures)], [], [], (34, 78))
    assert "| 2 histories, 1,200 faults of 10,000 | 7 operations, 9 entries | 1 |" in text
    assert "BLOB" not in text


def test_a_failed_history_without_a_finding_is_open() -> None:
    assert "| processes | 5/1 | one live attempt: 2\\|3 | **open** |" in page([PROGRESS], [], [], (34, 78))


def test_a_campaign_is_published_so_that_it_continues_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "FOLDER", tmp_path / "figures")
    path = tmp_path / ".campaign" / "5" / "progress.json"
    path.parent.mkdir(parents=True)
    played_there = msgspec.json.encode(PROGRESS).replace(b".campaign/5/", f"{tmp_path}/.campaign/5/".encode())
    path.write_bytes(played_there)
    target = published.publish(path)
    assert target == tmp_path / "figures" / "campaign-5.json"
    assert msgspec.json.decode(target.read_bytes(), type=Progress) == PROGRESS


def test_only_sections_that_the_page_has_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "FOLDER", tmp_path / "figures")
    path = tmp_path / "2026.json"
    path.write_bytes(msgspec.json.encode(BENCH))
    target = published.publish(path)
    assert target.name == "bench-flink.json"
    assert [each.name for each in msgspec.json.decode(target.read_bytes(), type=Bench).sections] == ["flink"]


def test_what_is_no_campaign_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    path.write_text('{"seed": "five"}')
    with pytest.raises(ValueError, match=r"progress\.json cannot be read"):
        published.publish(path)


def test_a_finding_names_a_test_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    finding = {"level": "spark", "effect": "A row was lost.", "test": "unit/nowhere.py"}
    (tmp_path / "findings.json").write_bytes(msgspec.json.encode({"version": 1, "findings": [finding]}))
    with pytest.raises(ValueError, match=r"tests/unit/nowhere\.py does not exist"):
        published.render()
