"""The resource driver for Slurm: what it asks Slurm for, how often, and what it makes of the answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.slurm.submission import gres_amounts
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedTaskManager
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs, _delete_old_outputs
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.resource_driver import NodeOutage, NoFreeNode, StartedTaskManager
from tests.support.contracts.resource_driver import FREE, NONE, blocked
from tests.support.kernel.few_descriptors import few_descriptors
from tests.support.resource_drivers.fake_slurm import FakeSlurm
from tests.support.resource_drivers.slurm_driver import slurm_driver

pytestmark = pytest.mark.req("BLK-9")

FIRST = TaskManagerId("tm-0")


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "slurm", ("n1", "n2"), os.getuid())


async def test_a_job_asks_for_what_is_configured_and_avoids_blocked_nodes(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(
        tmp_path,
        slurm,
        partition="long",
        account="physics",
        qos="high",
        constraint="ib&avx512",
        time_limit="24:00:00",
        arguments="--nice=5 '--comment=a b'",
    )
    await driver.start(blocked("n2"), NONE)
    (arguments,) = slurm.calls("sbatch")
    for expected in (
        "--dependency=singleton",
        "--no-requeue",
        "--nodes=1",
        "--cpus-per-task=2",
        "--mem=4608M",
        "--signal=B:USR1@300",
        "--partition=long",
        "--account=physics",
        "--qos=high",
        "--constraint=ib&avx512",
        "--time=24:00:00",
        "--exclude=n2",
    ):
        assert expected in arguments
    assert arguments[-2:] == ["--nice=5", "--comment=a b"], "they win over the others"
    (job,) = slurm.jobs()
    assert job["name"].startswith("embedded-")
    assert job["name"].endswith("-tm-0")
    assert "taskmanager.sigterm-ends-work=true" in job["script"]
    assert "jobmanager.rpc.address=10.0.0.1:8081" in job["script"]


@pytest.mark.req("RES-1")
async def test_the_gpus_that_jobs_ask_slurm_for_are_part_of_their_capacity(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm, gres="gpu:a100:2,shard:8")
    assert driver.spec.total.custom == amounts({"gpu": 2})
    await driver.start(FREE, NONE)
    (arguments,) = slurm.calls("sbatch")
    assert "--gres=gpu:a100:2,shard:8" in arguments


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("", {}),
        ("none", {}),
        ("gpu", {"gpu": 1}),
        ("gpu:3", {"gpu": 3}),
        ("gres/gpu:2,fpga:1", {"gpu": 2, "fpga": 1}),
        ("gpu:a100:2,gpu:h100:1", {"gpu": 3}),
        ("gpu:a100", {"gpu": 1}),
        ("gres/gpu=4", {"gpu": 4}),
    ],
)
def test_resources_are_read_as_slurm_writes_them(gres: str, found: dict[str, int]) -> None:
    assert gres_amounts(gres) == found


async def test_one_that_waits_for_a_node_is_queued(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.set_full(full=True)
    driver = slurm_driver(tmp_path, slurm)
    assert await driver.start(FREE, NONE) == StartedTaskManager(FIRST, "", queued=True)
    assert await driver.survey() == (StartedTaskManager(FIRST, "", queued=True),)
    slurm.set_full(full=False)
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)


async def test_the_queue_is_read_at_most_once_per_interval_even_if_it_cannot_be_read(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    time = 0.0
    driver = slurm_driver(tmp_path, slurm, lambda: time)
    for _ in range(5):
        await driver.survey()
    assert len(slurm.calls("squeue")) == 1
    slurm.switch("down", on=True)
    time = 5.0
    for _ in range(5):
        with pytest.raises(RetryLater, match="Unable to contact slurm controller"):
            await driver.survey()
    assert len(slurm.calls("squeue")) == 2
    slurm.switch("down", on=False)
    time = 10.0
    await driver.survey()
    assert len(slurm.calls("squeue")) == 3


async def test_a_submission_is_listed_at_once_though_the_queue_was_read_before(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    driver = slurm_driver(tmp_path, slurm, lambda: 0.0)
    assert await driver.survey() == ()
    await driver.start(FREE, NONE)
    assert await driver.survey() == (StartedTaskManager(FIRST, "", queued=True),)
    await driver.end(FIRST)
    assert await driver.survey() == ()


async def test_a_submission_whose_reply_is_lost_is_found_and_a_repeated_one_is_cancelled(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    driver = slurm_driver(tmp_path, slurm)
    slurm.switch("lose-reply", on=True)
    with pytest.raises(UnknownOutcome):
        await driver.start(FREE, NONE)
    await driver.start(FREE, NONE)  # before the queue was read again
    assert [job["job_state"] for job in slurm.jobs("-tm-0")] == ["RUNNING", "PENDING"], "never two at a time"
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)
    assert [job["job_state"] for job in slurm.jobs("-tm-0")] == ["RUNNING", "CANCELLED"]
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)


async def test_slurms_refusal_is_passed_on_in_its_words(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm)
    slurm.switch("refuse", on=True)
    with pytest.raises(
        RetryLater, match="Slurm refuses: invalid partition specified: nope; Batch job submission failed"
    ):
        await driver.start(FREE, NONE)
    assert await driver.survey() == ()


async def test_a_job_that_slurm_has_forgotten_has_ended_and_stays_listed(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm)
    await driver.start(FREE, NONE)
    await driver.survey()
    slurm.set_state("-tm-0", "NODE_FAIL")
    slurm.forget_ended()
    for _ in range(2):
        assert await driver.survey() == (StartedTaskManager(FIRST, "n1", alive=False),)
    await driver.revive(FIRST, FREE)
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)


@pytest.mark.parametrize("how", ["ended by itself", "cancelled"])
async def test_a_job_that_an_earlier_leader_has_ended_is_not_listed_again(
    tmp_path: Path, slurm: FakeSlurm, how: str
) -> None:
    """Slurm shows it for some minutes, and what has died unnoticed would be submitted again."""
    earlier = slurm_driver(tmp_path, slurm)
    for taken in (NONE, frozenset({FIRST})):
        await earlier.survey()
        await earlier.start(FREE, taken)
    if how == "ended by itself":
        slurm.set_state("-tm-0", "COMPLETED")
        await earlier.survey()
    await earlier.end(FIRST)
    slurm.set_state("-tm-1", "NODE_FAIL")
    second = TaskManagerId("tm-1")
    leader = slurm_driver(tmp_path, slurm)
    assert await leader.survey() == (StartedTaskManager(second, "n1", alive=False),)
    await leader.revive(second, FREE)
    slurm.set_state("-tm-1", "COMPLETED")
    await leader.survey()
    await leader.end(second)
    assert await slurm_driver(tmp_path, slurm).survey() == ()


async def test_a_record_of_ended_jobs_that_is_damaged_keeps_no_task_manager_away(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    await slurm_driver(tmp_path, slurm).start(FREE, NONE)
    record = tmp_path / "resourcemanager" / "ended-slurm-jobs"
    record.write_bytes(b"emberkeep")
    driver = slurm_driver(tmp_path, slurm)
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)
    await driver.end(FIRST)
    assert await slurm_driver(tmp_path, slurm).survey() == ()


async def test_one_that_comes_back_avoids_blocked_nodes(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm)
    await driver.start(FREE, NONE)
    await driver.survey()
    slurm.set_state("-tm-0", "FAILED")
    with pytest.raises(NoFreeNode, match="2 are blocked"):
        await driver.revive(FIRST, blocked("n1", "n2"))
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1", alive=False),)
    await driver.revive(FIRST, blocked("n1"))
    assert await driver.survey() == (StartedTaskManager(FIRST, "n2"),)


async def test_one_that_is_blocked_itself_comes_back_to_report_what_is_lost(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm)
    await driver.start(FREE, NONE)
    slurm.set_state("-tm-0", "FAILED")
    await driver.survey()
    entry = BlockedTaskManager(id=FIRST, action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("x",))
    await driver.revive(FIRST, BlockedPlaces((entry,)))
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1"),)


async def test_another_one_starts_while_the_first_is_blocked_itself(tmp_path: Path, slurm: FakeSlurm) -> None:
    entry = BlockedTaskManager(id=FIRST, action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("x",))
    assert (await slurm_driver(tmp_path, slurm).start(BlockedPlaces((entry,)), NONE)).id == "tm-1"


@pytest.mark.req("BLK-20")
async def test_a_list_without_nodes_says_nothing_about_any_node(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm, partition="nope")
    slurm.remove_nodes()
    for _ in range(2):
        with pytest.raises(RetryLater, match="`sinfo` lists no node of partition nope"):
            await driver.outages()
    with pytest.raises(RetryLater, match="lists no node"):
        await driver.start(FREE, NONE)
    assert slurm.jobs() == []


async def test_why_a_job_has_ended_is_in_the_log_and_only_the_newest_outputs_are_kept(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    driver = slurm_driver(tmp_path / "state", slurm)
    await driver.start(FREE, NONE)
    await driver.survey()
    (job,) = slurm.jobs()
    outputs = tmp_path / "state" / "resourcemanager"
    output = outputs / f"{job['name']}-{job['job_id']}.log"
    output.write_text("no such interpreter\n")
    for number in range(250):
        older = outputs / f"earlier-{number}.log"
        older.touch()
        os.utime(older, (number, number))
    slurm.set_state("-tm-0", "FAILED")
    assert await driver.survey() == (StartedTaskManager(FIRST, "n1", alive=False),)
    with capture_logs() as said:
        await driver.end(FIRST)
    (line,) = said
    assert (line["state"], line["said"]) == ("FAILED", "no such interpreter")
    assert slurm.calls("scancel") == [], "nothing is left to end"
    await driver.start(FREE, NONE)
    assert output.exists()
    assert len(list(outputs.glob("*.log"))) == 200


async def test_the_output_of_a_running_job_is_kept_however_long_it_has_been_silent(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    driver = slurm_driver(tmp_path / "state", slurm)
    await driver.start(FREE, NONE)
    await driver.survey()
    (job,) = slurm.jobs()
    outputs = tmp_path / "state" / "resourcemanager"
    silent = outputs / f"{job['name']}-{job['job_id']}.log"
    silent.write_text("started\n")
    os.utime(silent, (0, 0))
    for number in range(250):
        ended = outputs / f"earlier-{number}.log"
        ended.touch()
        os.utime(ended, (number + 1, number + 1))
    await driver.start(FREE, frozenset({FIRST}))
    assert silent.exists()
    assert not (outputs / "earlier-0.log").exists()


def test_outputs_that_cannot_be_listed_now_stay(tmp_path: Path) -> None:
    for number in range(201):
        (tmp_path / f"earlier-{number}.log").touch()
    with few_descriptors(0):
        _delete_old_outputs(tmp_path, frozenset())
    assert len(list(tmp_path.iterdir())) == 201


async def test_a_command_that_hangs_is_ended(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm, command_timeout="1s")
    slurm.switch("hang", on=True)
    with pytest.raises(RetryLater, match="no answer within 1 s"):
        await driver.survey()


async def test_a_cancellation_that_fails_is_repeated_more_and_more_rarely(tmp_path: Path, slurm: FakeSlurm) -> None:
    now = 0.0
    driver = slurm_driver(tmp_path, slurm, lambda: now)
    one = (await driver.start(FREE, NONE)).id
    slurm.switch("down", on=True)
    while now < 8.0:  # each cycle of the JobManager
        with pytest.raises(EmberkeepError, match="Unable to contact"):
            await driver.end(one)
        now += 0.5
    assert len(slurm.calls("scancel")) == 4
    slurm.switch("down", on=False)
    now = 16.0
    await driver.end(one)
    assert slurm.jobs()[0]["job_state"] == "CANCELLED"


async def test_jobs_of_other_clusters_are_left_alone(tmp_path: Path, slurm: FakeSlurm) -> None:
    other = slurm_driver(tmp_path / "other", slurm)
    await other.start(FREE, NONE)
    driver = slurm_driver(tmp_path / "own", slurm)
    assert await driver.survey() == ()
    assert (await driver.start(FREE, NONE)).id == FIRST
    await driver.end(FIRST)
    assert await other.survey() == (StartedTaskManager(FIRST, "n1"),)


@pytest.mark.req("BLK-20")
async def test_drained_nodes_are_out_of_service_and_sinfo_is_cached_too(tmp_path: Path, slurm: FakeSlurm) -> None:
    time = 0.0
    driver = slurm_driver(tmp_path, slurm, lambda: time)
    assert await driver.outages() == ()
    slurm.drain("n2", "disk is failing")
    assert await driver.outages() == ()
    time = 5.0
    assert await driver.outages() == (NodeOutage("n2", "Slurm: disk is failing", 0),)
    assert len(slurm.calls("sinfo")) == 2
    slurm.switch("down", on=True)
    time = 10.0
    for _ in range(3):
        with pytest.raises(RetryLater):
            await driver.outages()
    assert len(slurm.calls("sinfo")) == 3


async def test_commands_that_do_not_exist_are_named(tmp_path: Path, slurm: FakeSlurm) -> None:
    driver = slurm_driver(tmp_path, slurm)
    (slurm.bin / "squeue").unlink()
    with pytest.raises(EmberkeepError, match="squeue: No such file") as raised:
        await driver.survey()
    assert "resourcemanager.slurm.bin-dir" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("settings", "address", "said"),
    [
        ({}, "10.0.0.1:8081", "taskmanager.memory.process.size is not set"),
        ({"taskmanager.memory.process.size": "4g"}, "127.0.0.1:8081", "cannot reach the JobManager at 127.0.0.1"),
        (
            {"taskmanager.memory.process.size": "4g", "resourcemanager.slurm.arguments": "'--comment=a"},
            "10.0.0.1:8081",
            "No closing quotation",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str], address: str, said: str
) -> None:
    configuration = Configuration().with_texts(settings, "test")
    with pytest.raises(InvalidInput, match=said):
        SlurmJobs(configuration, StateLayout(tmp_path, configuration), address)


@pytest.mark.parametrize("key", ["query-interval", "command-timeout", "drain-time"])
@pytest.mark.parametrize("text", ["0", "500ms"])
def test_slurm_is_not_asked_in_a_loop_by_a_setting(key: str, text: str) -> None:
    with pytest.raises(InvalidInput, match="expected at least"):
        Configuration().with_texts({f"resourcemanager.slurm.{key}": text}, "test")
