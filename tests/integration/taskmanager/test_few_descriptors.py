"""Real processes, while the process that supervises them has no descriptors left, for a while."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.cgroups.port import Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.cgroups.version2 import PlaceV2
from emberkeep.adapters.processes.supervisor import Exit
from emberkeep.base.errors import EmberkeepError, RetryLater
from tests.integration.taskmanager.test_processes import SLEEP, Bench, until, watching
from tests.support.kernel.few_descriptors import few_descriptors
from tests.support.kernel.group_tree import GroupTree

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    watching = asyncio.create_task(bench.supervisor.run())
    yield bench
    for name in bench.supervisor.running():
        await bench.supervisor.stop(name, 0.0)
    assert not watching.done(), "it watches to the end"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await bench.supervisor.close()


async def test_a_look_that_fails_ends_nothing_and_is_repeated(bench: Bench) -> None:
    pid = await bench.start(SLEEP)
    with capture_logs() as logs, few_descriptors(0):
        bench.supervisor._watch._next_sweep = 0.0
        bench.supervisor._watch._look_again.set()
        await until(lambda: bool(logs))
        assert bench.supervisor.running() == {"p"}
    assert [entry["event"] for entry in logs] == ["cannot look at processes now, trying again"]

    os.kill(pid, signal.SIGKILL)

    assert await bench.exit() == Exit("p", -signal.SIGKILL)


async def test_a_stop_waits_for_descriptors(bench: Bench) -> None:
    await bench.start(SLEEP)
    with few_descriptors(0):
        stopping = asyncio.create_task(bench.supervisor.stop("p", 0.0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stopping), 0.1)

    await stopping

    assert bench.exits == [Exit("p", -signal.SIGKILL)]


async def test_how_much_memory_processes_use_is_unknown_then(bench: Bench) -> None:
    await bench.start(SLEEP)

    with few_descriptors(0), pytest.raises(RetryLater, match="Too many open files"):
        await bench.supervisor.memory_mb()


@pytest.mark.parametrize("free", range(14))
async def test_a_start_either_fails_without_a_trace_or_is_watched(bench: Bench, free: int) -> None:
    pid, hint = None, ""
    with few_descriptors(free):
        try:
            pid = await bench.start(SLEEP)
        except EmberkeepError as error:
            hint = error.hint or "none"

    if pid is None:
        assert "ulimit -n" in hint, "it names what is missing"
    else:
        os.kill(pid, signal.SIGKILL)
        assert await bench.exit() == Exit("p", -signal.SIGKILL)
    await until(lambda: not bench.supervisor.running() and not list(bench.records.iterdir()))


class ShortTree(GroupTree):
    """Has no descriptor for the file ``lacking``."""

    lacking = ""

    def write(self, path: Path, text: str) -> None:
        if path.name == self.lacking:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        super().write(path, text)


@pytest.mark.parametrize("lacking", ["memory.max", "cgroup.procs"])
async def test_a_start_whose_control_group_lacks_a_descriptor_may_be_repeated(tmp_path: Path, lacking: str) -> None:
    tree = ShortTree(tmp_path / "groups", 2)
    bench = Bench(tmp_path, ProcessGroups(PlaceV2(tree.root / "place", tree, 4)))
    request = bench.request(SLEEP, share=Share(cores=1, memory_mb=64))
    async with watching(bench.supervisor):
        tree.lacking = lacking
        with pytest.raises(RetryLater) as raised:
            await bench.supervisor.start(request, bench.exits.append)
        assert raised.value.hint is not None
        assert "ulimit -n" in raised.value.hint
        assert tree.below(tree.root / "place") == []
        assert list(bench.records.iterdir()) == []

        tree.lacking = ""
        await bench.supervisor.start(request, bench.exits.append)
