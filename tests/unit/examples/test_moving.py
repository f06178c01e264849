"""The example of docs/moving-to-new-code.md: its scripts, its input, and a comparison that finds what is wrong."""

import json
import re
from pathlib import Path

import pytest

from examples.moving import feed, verify

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "moving-to-new-code.md"


def write_output(directory: Path, batches: list[list[dict[str, object]]]) -> None:
    """As Spark's file sink does."""
    log = directory / "_spark_metadata"
    log.mkdir(parents=True)
    for number, rows in enumerate(batches):
        name = f"part-{number}.json"
        (directory / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        (log / str(number)).write_text("v1\n" + json.dumps({"path": f"file://{directory}/{name}", "size": 1}))
    (directory / "part-of-a-failed-task.json").write_text('{"start": "2026-01-01T00:00:00Z"}\n')


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The right output of version 1 and then 2, an hour east of Greenwich."""
    feed.write(tmp_path / "in", 0, 40)
    feed.write(tmp_path / "in", 40, 5)
    readings = [feed.reading(number) for number in range(45)]
    windows, _ = verify.expected(readings)
    rows: list[dict[str, object]] = [
        {"start": f"2026-01-01T01:00:{start - feed.START:02}.000+01:00", "station": station, "readings": count}
        for (start, station), count in sorted(windows.items())
    ]
    for row in rows[:4]:  # of version 1
        row["station"] = str(row["station"]).capitalize()
    frost: list[dict[str, object]] = [reading for reading in readings if int(str(reading["celsius"])) < 0]
    write_output(tmp_path / "windows", [rows[:4], rows[4:]])
    write_output(tmp_path / "frost", [frost])
    return tmp_path


def test_readings_are_the_same_each_time_and_whole_files(place: Path) -> None:
    texts = [path.read_text() for path in sorted((place / "in").iterdir())]
    assert [len(text.splitlines()) for text in texts] == [20, 20, 5]
    assert [json.loads(line) for text in texts for line in text.splitlines()] == [feed.reading(n) for n in range(45)]


def test_the_right_output_is_found_right(place: Path) -> None:
    assert verify.problems(place) == []


def test_what_is_missing_or_there_twice_is_found(place: Path) -> None:
    part = place / "windows" / "part-1.json"
    lines = part.read_text().splitlines(keepends=True)
    part.write_text("".join(lines[1:]))
    assert len(verify.problems(place)) == 1
    part.write_text("".join([*lines, lines[0]]))
    assert "was written twice" in verify.problems(place)[0]
    part.write_text("".join(lines))
    frost = place / "frost" / "part-0.json"
    frost.write_text(frost.read_text() * 2)
    assert "2 times instead of 1" in verify.problems(place)[0]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_scripts_are_python(version: str) -> None:
    path = ROOT / "examples" / "moving" / f"{version}.py"
    compile(path.read_text(), str(path), "exec")


def test_the_page_names_files_that_exist() -> None:
    named = set(re.findall(r"examples/moving/\w+\.py", PAGE.read_text()))
    assert named == {f"examples/moving/{name}.py" for name in ("feed", "v1", "v2", "verify")}
    assert all((ROOT / name).is_file() for name in named)
