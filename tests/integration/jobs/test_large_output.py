"""A script prints more than the bound of its output: the disk space stays bounded, and the log readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.kept_logs.files import KeepLimits, KeptLogFiles
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.model import KeptLogKey
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.support.kept_logs.pieces import content_of

pytestmark = [pytest.mark.integration]

MOST = 4 * 1024**2
LINE = 100
PER_TURN = 5_000  # lines: an eighth of the bound
TURNS = 60
SCRIPT = f"""
import os, pathlib, sys, time

print("the first line", flush=True)
for turn in range({TURNS}):
    for number in range({PER_TURN}):
        print(f"line {{turn * {PER_TURN} + number:<{LINE - 6}}}")
    sys.stdout.flush()
    before = time.monotonic()
    while time.monotonic() < before + 0.2:
        time.sleep(0.05)
print("all is printed", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("the last line", flush=True)
"""


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        settings = ("-D", f"taskmanager.log.max-size={MOST}", "-D", "logs.keep.interval=1s")
        cluster.up("--task-managers", "1", *QUICK, *settings)
        yield cluster
    finally:
        cluster.close()


def test_output_is_bounded_while_the_job_runs(cluster: Cluster) -> None:
    shell, go = cluster.shell, cluster.shell.work / "go"
    job_id = cluster.submit(shell.write("print.py", SCRIPT), arguments=(str(go),))
    following = shell.start("logs", "-f", job_id)
    until(lambda: _end(shell, job_id) == "all is printed", lambda: cluster.story(job_id))
    task_manager = cluster.ask(lambda client: client.task_managers())[0].id
    output = Path(cluster.daemon(task_manager).directory) / "logs" / "jobs" / job_id / "1" / "driver.stdout"

    until(lambda: output.stat().st_blocks * 512 <= MOST, lambda: str(output.stat()))

    printed = output.stat().st_size
    assert printed > 7 * MOST, "the file keeps its size"
    shown = shell.done("logs", job_id).out
    _check(shown, printed)
    assert shown.endswith("all is printed\n")
    assert shell.done("logs", job_id, "--grep", f"line {TURNS * PER_TURN - 1} ").out.split()[-1] == "299999"
    go.touch()
    cluster.wait_for_end(job_id)
    followed = following.wait().out
    assert followed.startswith("the first line\n")
    assert followed.endswith("the last line\n")
    assert output.stat().st_blocks * 512 <= MOST

    def stored() -> str:
        opened = kept.open(KeptLogKey(job_id=job_id, attempt=1, task_manager=task_manager, name=output.name))
        return "" if opened is None or not opened.summary.is_whole else content_of(opened).decode()

    kept = KeptLogFiles(shell.state / "storage" / "logs", KeepLimits(most_bytes=1024**3, keep_ms=0))
    copied = until(stored, "the log is stored")
    assert copied.startswith("the first line\n")
    assert copied.endswith("the last line\n")
    assert "\0" not in copied


def _check(shown: str, printed: int) -> None:
    """Start and end are there; the bytes in between are there or said to be missing."""
    lines = shown.splitlines()
    assert lines[0] == "the first line"
    notes = [line for line in lines if line.startswith("--- Emberkeep: ")]
    assert len(notes) == 1
    missing = int(notes[0].split()[2])
    kept = len(shown) - len(notes[0]) - len("\n")
    assert 0 <= kept - (printed - missing) <= 1, "the note ends the line before it"
    assert "\0" not in shown


def _end(shell: Shell, job_id: JobId) -> str:
    return shell.run("logs", job_id, "--range", "-15").out.strip()
