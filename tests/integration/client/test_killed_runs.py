"""`emberkeep run` without a cluster: what a run leaves whose command was killed, and the logs that were asked for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from emberkeep.client.clusters.run_directories import LOGS_KEPT
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.live_files import files_below

pytestmark = [pytest.mark.integration, pytest.mark.req("SAFE-7")]

WAITS = """
import time

print("it has begun", flush=True)
time.sleep(3600)
"""


def logs_with(text: str, below: Path) -> list[Path]:
    return [path for path in files_below(below) if text in path.read_text(errors="replace")]


@pytest.mark.long
def test_logs_outlive_a_killed_command_for_a_day_and_go_with_a_later_run(shell: Shell, tmp_path: Path) -> None:
    storage = tmp_path / "shared"
    storage.mkdir()
    own = ("-D", f"high-availability.storageDir={storage}")
    shell.write("waits.py", WAITS)
    running = shell.start("run", *own, "waits.py")
    until(lambda: "it has begun" in running.out, lambda: str(running))
    (directory,) = (shell.state / "runs").iterdir()
    running.process.kill()
    running.wait()
    shell.traces.check_nothing_left()

    shell.write("fine.py", "print('ran')\n")
    after = shell.done("run", *own, "fine.py")
    assert after.out == "ran\n"
    assert f"left logs below {directory}; they are kept for 24 hours" in after.err
    assert logs_with("it has begun", directory)
    assert not files_below(directory, name="jobs.sqlite")
    assert list(storage.iterdir()) == []

    long_ago = time.time() - LOGS_KEPT
    os.utime(directory / "ended", (long_ago, long_ago))
    shell.done("run", *own, "fine.py")
    assert list((shell.state / "runs").iterdir()) == []


def test_logs_that_a_run_was_told_to_keep_are_there_after_the_next_run(shell: Shell) -> None:
    shell.write("fine.py", "print('ran')\n")
    kept = shell.done("run", "--keep-logs", "fine.py")
    directory = Path(
        kept.err.splitlines()[-1].removeprefix("emberkeep: ").removeprefix("the logs of this run are below ")
    )
    assert logs_with("ran", directory), kept
    shell.done("run", "fine.py")
    assert logs_with("ran", directory)
