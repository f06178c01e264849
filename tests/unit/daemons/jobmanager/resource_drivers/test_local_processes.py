"""The driver of local task managers with a program in their place that does nothing: records, marks, ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.options.resource_drivers import LOCAL_NODES
from emberkeep.base.configuration.options.task_managers import MEMORY, TASK_MANAGER_HOST
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import TaskManagerId
from emberkeep.base.processes.process_identity import ProcessIdentity, is_alive, own_identity
from emberkeep.base.started_task_managers import read_started, write_started
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.local_processes import LocalNode, LocalProcesses, parse_nodes
from emberkeep.daemons.records.agent_files import AgentLife, write_agent_life
from emberkeep.slots.resource_driver import NoFreeNode, StartedTaskManager
from tests.integration.conditions import until

FREE = BlockedPlaces()
FIRST, SECOND = TaskManagerId("tm-127.0.0.2"), TaskManagerId("tm-spare")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Notes its arguments and stays."""
    path = tmp_path / "program"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\nenv >> {tmp_path}/environment\nexec sleep 1000\n')
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


@pytest.fixture
async def made(tmp_path: Path, program: Path) -> AsyncIterator[Callable[[], LocalProcesses]]:
    """Makes drivers over the same records, as leaders that follow each other."""
    configuration = Configuration().with_texts(
        {
            LOCAL_NODES.key: "127.0.0.2, spare=127.0.0.3",
            REST_PORT.key: "9999",
            MEMORY.key: "2g",
            TASK_MANAGER_HOST.key: "10.0.0.1",
        },
        "test",
    )
    layout = StateLayout(tmp_path / "state", configuration)

    def make() -> LocalProcesses:
        return LocalProcesses(configuration, layout, "127.0.0.1:9999")

    yield make
    for each in await make().survey():
        await make().end(each.id)


def identity_of(tmp_path: Path, task_manager: TaskManagerId) -> ProcessIdentity:
    (record,) = [
        each for each in read_started(tmp_path / "state" / "resourcemanager") if each.task_manager == task_manager
    ]
    assert record.identity is not None
    return record.identity


def block(*nodes: str) -> BlockedPlaces:
    action = BlockAction.MARK_BLOCKED
    return BlockedPlaces(BlockedNode(id=node, action=action, start_ms=0, causes=("x",)) for node in nodes)


@pytest.mark.req("BLK-9")
@pytest.mark.req("BLK-10")
async def test_one_per_node_under_an_id_for_good_never_on_a_blocked_one(
    tmp_path: Path, made: Callable[[], LocalProcesses]
) -> None:
    driver = made()
    with pytest.raises(NoFreeNode, match="2 are blocked"):
        await driver.start(block("127.0.0.2", "spare"), set())
    with pytest.raises(NoFreeNode):
        await driver.start(block("127.0.0.2"), {SECOND})
    assert await driver.start(block("127.0.0.2"), set()) == StartedTaskManager(SECOND, "spare")
    assert await driver.start(FREE, {SECOND}) == StartedTaskManager(FIRST, "127.0.0.2")
    assert await driver.survey() == (StartedTaskManager(FIRST, "127.0.0.2"), StartedTaskManager(SECOND, "spare"))

    until(lambda: len((tmp_path / "arguments").read_text().splitlines()) == 2, "both have noted their arguments")
    line = next(line for line in (tmp_path / "arguments").read_text().splitlines() if "tm-spare" in line)
    for setting in ("taskmanager.node-id=spare", "taskmanager.host=127.0.0.3", "jobmanager.rpc.address=127.0.0.1:9999"):
        assert f"-D {setting} " in f"{line} "
    settings = load_configuration(config_file=tmp_path / "state/resourcemanager/taskmanager.yaml", environ={})
    assert settings[REST_PORT] == 9999
    assert settings.origin(TASK_MANAGER_HOST) == "default", "each has its own"


async def test_the_next_leader_knows_them_also_where_the_last_one_died_between_start_and_record(
    tmp_path: Path, made: Callable[[], LocalProcesses]
) -> None:
    records = tmp_path / "state" / "resourcemanager"
    await made().start(FREE, set())
    before = identity_of(tmp_path, FIRST)
    (record,) = read_started(records)
    write_started(records, msgspec.structs.replace(record, identity=None))
    assert await made().survey() == (StartedTaskManager(FIRST, "127.0.0.2"),)
    assert read_started(records)[0].process() == before

    # A start of which only the intent was written has not happened.
    write_started(
        records, msgspec.structs.replace(record, task_manager=SECOND, node_id="spare", mark="0", identity=None)
    )
    assert (await made().survey())[1] == StartedTaskManager(SECOND, "spare", alive=False)


async def test_one_that_has_ended_is_listed_until_it_is_revived_or_ended(
    tmp_path: Path, made: Callable[[], LocalProcesses]
) -> None:
    driver = made()
    await driver.start(FREE, set())
    first = identity_of(tmp_path, FIRST)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_alive(first), "it ends")
    assert await driver.survey() == (StartedTaskManager(FIRST, "127.0.0.2", alive=False),)
    await driver.revive(FIRST, FREE)
    assert await driver.survey() == (StartedTaskManager(FIRST, "127.0.0.2"),)
    second = identity_of(tmp_path, FIRST)
    assert second != first
    await made().end(FIRST)
    assert not is_alive(second)
    assert await driver.survey() == ()
    await driver.end(FIRST)
    with pytest.raises(Fatal, match="no longer lists the node"):
        await driver.revive(TaskManagerId("tm-other"), FREE)


async def test_one_that_somebody_else_has_started_there_since_counts_as_alive(
    tmp_path: Path, made: Callable[[], LocalProcesses]
) -> None:
    driver = made()
    await driver.start(FREE, set())
    first = identity_of(tmp_path, FIRST)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_alive(first), "it ends")
    record = WorkingDirectory(tmp_path / "state" / "taskmanagers" / FIRST).agent_record
    write_agent_life(record, AgentLife(instance=msgspec.json.decode('"0"'), process=own_identity(), port=1))
    assert await driver.survey() == (StartedTaskManager(FIRST, "127.0.0.2"),)
    record.unlink()  # so that the fixture does not end this process


async def test_a_program_that_cannot_be_started_is_told(made: Callable[[], LocalProcesses], program: Path) -> None:
    driver = made()
    program.unlink()
    with pytest.raises(Fatal, match="cannot start task manager tm-127"):
        await driver.start(FREE, set())
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o700)
    assert (await driver.start(FREE, set())).id == SECOND, "where a start has failed others have their turn"


def test_nodes_in_words() -> None:
    assert parse_nodes("127.0.0.2, b=127.0.0.3,") == (LocalNode("127.0.0.2", "127.0.0.2"), LocalNode("b", "127.0.0.3"))
    for text in ("", " , ", "a,a", "a=1,a=2", "a b", "=1"):
        with pytest.raises(InvalidInput):
            parse_nodes(text)
