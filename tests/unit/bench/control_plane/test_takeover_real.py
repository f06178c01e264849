"""What the jobs' own output tells about a takeover."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.control_plane.takeover_real import batch_times, longest_pause


def test_the_longest_pause_is_that_which_touches_the_span() -> None:
    times = [0.0, 5.0, 6.0, 8.0, 9.0, 19.0]
    assert longest_pause(times, 5.5, 8.5) == 2.0
    assert longest_pause(times, 4.0, 8.0) == 5.0
    assert longest_pause(times, 8.5, 12.0) == 10.0


@pytest.mark.parametrize(
    "lines",
    [
        ("0 1.0 10", "2 2.0 10"),
        ("0 1.0 10", "1 2.0 10", "1 3.0 10"),
        ("0 1.0 10", "1 2.0 9"),
    ],
)
def test_a_batch_that_is_lost_or_came_twice_is_no_measurement(tmp_path: Path, lines: tuple[str, ...]) -> None:
    (tmp_path / "output").write_text("\n".join(lines) + "\n")
    with pytest.raises(SystemExit, match="lost or repeated"):
        batch_times(tmp_path / "output")


def test_a_pause_that_has_not_ended_counts_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("0 1.0 10\n1 2.5 10\n")
    first, second, now = batch_times(tmp_path / "output")
    assert (first, second) == (1.0, 2.5)
    assert now > 2.5
