"""The commands of docs/moving-to-new-code.md, as they stand there: a stream moves to new code, and every row counts
once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from examples.moving import feed, verify
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Ended, Shell
from tests.integration.conditions import DEADLINE

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "moving-to-new-code.md"
PLACE = "/tmp/moving"


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    shell.use_small_jvms()
    cluster = Cluster(shell)
    cluster.up("-D", "taskmanager.numberOfTaskSlots=1", *QUICK)
    yield cluster
    cluster.cancel_all()
    cluster.close()


@pytest.mark.req("END-4", "END-5", "END-9")
def test_the_pages_commands_lose_and_repeat_nothing(cluster: Cluster, tmp_path: Path) -> None:
    place = tmp_path / "moving"
    start, move, more, end = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    first = submitted(run(cluster.shell, start, place))
    cluster.wait_for(first, lambda _: has_window(place, 30), "version 1 has written what its watermark has passed")
    second = submitted(run(cluster.shell, move, place))
    assert second != first
    cluster.wait_for_end(first)
    run(cluster.shell, more, place)
    cluster.wait_for(second, lambda _: has_window(place, 130) and has_frost(place), "version 2 has read all")
    ended = run(cluster.shell, end, place)

    assert ended.out.splitlines()[-1] == "every window once, with all its readings"
    cluster.wait_for_end(second)
    versions = {bool("end" in row) for row in verify.rows(place / "windows")}
    assert versions == {False, True}, "both versions have written windows"


def run(shell: Shell, block: str, place: Path) -> Ended:
    """A block of the page, in the project's directory and environment."""
    programs = Path(sys.executable).parent
    environment = {
        **shell.environment,
        "PATH": f"{programs}:{shell.environment['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace(PLACE, str(place))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert ended.code == 0, f"{block}{ended}"
    return ended


def submitted(ended: Ended) -> JobId:
    return JobId(ended.out.strip().splitlines()[-1])


def written(directory: Path) -> list[dict[str, object]]:
    return list(verify.rows(directory)) if (directory / "_spark_metadata").is_dir() else []


def has_window(place: Path, second: int) -> bool:
    return any(verify.seconds(str(row["start"])) == feed.START + second for row in written(place / "windows"))


def has_frost(place: Path) -> bool:
    """All of it: the second query has read everything."""
    readings = [feed.reading(number) for number in range(160)]
    _, frost = verify.expected(readings)
    return len(written(place / "frost")) >= frost.total()
