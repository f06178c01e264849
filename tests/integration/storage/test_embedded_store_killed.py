"""A JobManager's store survives the death of its process at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

WRITER = """
import asyncio, sys
from pathlib import Path
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from tests.support.contracts.job_store import job, result_of

async def main(root, first):
    store = EmbeddedJobStore(root / "jm" / "jobs.sqlite", root / "graphs")
    await store.open()
    for number in range(first, first + 100_000):
        await store.create(job(number, options={"x": "y" * (number % 7) * 10_000}))
        print("created", number, flush=True)
        await store.record_attempt(job(number).job_id, 1)
        print("started", number, flush=True)
        if number % 2:
            await store.record_result(result_of(job(number)))
            print("ended", number, flush=True)

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.req("HA-4")
@pytest.mark.req("HA-11")
async def test_nothing_that_was_answered_is_lost_by_a_kill_at_any_moment(tmp_path: Path) -> None:
    told: dict[str, set[int]] = {"created": set(), "started": set(), "ended": set()}
    for turn in range(4):
        _write_and_kill(tmp_path, first=turn * 1000, lines=5 + 3 * turn, told=told)
        store = EmbeddedJobStore(tmp_path / "jm" / "jobs.sqlite", tmp_path / "graphs")
        await store.open()
        stored = {int(entry.job_id, 16): entry for entry in await store.recover()}
        ended = {int(result.job_id, 16) for result in await store.results()}
        without_handle = await store.leftovers.graphs()
        assert _graphs(tmp_path) == stored.keys() | {int(job_id, 16) for job_id in without_handle}
        for job_id in without_handle:
            await store.leftovers.remove_graph(job_id)
        assert _graphs(tmp_path) == stored.keys()
        await store.close()
        assert all(entry.graph is not None for entry in stored.values())
        assert not stored.keys() & ended
        assert told["created"] <= stored.keys() | ended
        assert told["ended"] <= ended
        assert all(stored[number].attempt == 1 for number in told["started"] & stored.keys())


def _graphs(root: Path) -> set[int]:
    return {int(path.name.removesuffix(".graph"), 16) for path in root.glob("graphs/*/*")}


def _write_and_kill(root: Path, *, first: int, lines: int, told: dict[str, set[int]]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(first)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for count, line in enumerate(writer.stdout):
            what, number = line.split()
            told[what].add(int(number))
            if count == lines:
                writer.send_signal(signal.SIGKILL)
