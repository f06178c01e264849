"""A task manager's record on disk under every crash and damage, and how drivers see whether their agent lives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import Fatal
from emberkeep.base.ids import InstanceId, JobId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.driver.agent_watch import AgentWatch
from emberkeep.daemons.records.agent_files import AgentLife, SlotsFile, read_agent_life, write_agent_life
from emberkeep.taskmanager.journal import Journal
from tests.campaign import examples
from tests.support.crashes.task_manager import slots_record

JOB = JobId("a" * 32)


class OwnClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@settings(max_examples=examples(100), deadline=None)
@given(cut=st.integers(0, 10_000), flip=st.booleans())
def test_a_record_that_is_cut_or_changed_anywhere_is_never_believed(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.record"
    SlotsFile(path).store(slots_record(3))
    data = path.read_bytes()
    at = cut % len(data)
    path.write_bytes(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :] if flip else data[:at])
    with pytest.raises(Fatal):
        SlotsFile(path).load()
    assert asyncio.run(Journal(SlotsFile(path)).read()) is None


def test_a_record_of_another_version_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "slots.record"
    SlotsFile(path).store(slots_record(1))
    path.write_bytes(path.read_bytes().replace(b"task-manager-slots 1 ", b"task-manager-slots 2 "))
    with pytest.raises(Fatal, match="version 2 was written by a newer release"):
        SlotsFile(path).load()


class TestAgentWatch:
    def test_one_that_comes_back_in_time_is_no_loss(self) -> None:
        clock = OwnClock()
        watch = AgentWatch(Path("nowhere"), 10.0, clock)
        assert watch.look(True) == 0.0
        clock.now += 100.0
        assert watch.look(False) == 0.0
        clock.now += 9.0
        assert watch.look(False) == 9.0
        assert watch.look(True) == 0.0
        clock.now += 9.0
        assert watch.look(False) == 0.0

    @pytest.mark.req("LOC-11")
    @pytest.mark.anyio
    async def test_it_looks_for_the_process_that_is_recorded(self, tmp_path: Path) -> None:
        path = tmp_path / "agent.record"
        life = AgentLife(instance=InstanceId("life"), process=own_identity(), port=1)
        write_agent_life(path, life)
        assert read_agent_life(path) == life
        watch = AgentWatch(path, 0.2, SystemClock())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await watch.orphaned()
        another = msgspec.structs.replace(life.process, start_ticks=life.process.start_ticks + 1)
        write_agent_life(path, msgspec.structs.replace(life, process=another))
        async with asyncio.timeout(120.0):
            assert await watch.orphaned() > 0.2
        path.unlink()
        async with asyncio.timeout(120.0):
            assert await AgentWatch(path, 0.2, SystemClock()).orphaned() > 0.2
