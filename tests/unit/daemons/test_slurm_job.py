"""The batch script's process: what it gives the task manager, how it passes signals on, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emberkeep.adapters.processes.place_lock import held
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons import slurm_job
from tests.integration.conditions import until

# In place of the task manager: notes its arguments and signals. It ends like one, with 0 after the order to end.
_AGENT = """
import signal, sys, time
from pathlib import Path
place = Path({place!r})
with (place / "starts").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if (place / "crash").exists():
    (place / "crash").unlink()
    sys.exit(70)
def ends(number, _):
    (place / "signal").write_text(str(number))
    sys.exit(0)
time.sleep({late})
signal.signal(signal.SIGUSR1, ends)
signal.signal(signal.SIGTERM, ends)
while True:
    time.sleep(0.05)
"""

IN_SLURM = {"SLURMD_NODENAME": "node-7", "SLURM_JOB_ID": "42"}


class Job:
    """A running batch script."""

    def __init__(
        self, place: Path, *settings: str, late: float = 0.0, environment: dict[str, str] | None = None
    ) -> None:
        self.place = place
        agent = place / "agent.py"
        agent.write_text(_AGENT.format(place=str(place), late=late))
        run = (
            "import sys\nfrom emberkeep.daemons import slurm_job\n"
            "from emberkeep.daemons.supervision import supervised_agent\n"
            f"supervised_agent.AGENT[:] = [sys.executable, {str(agent)!r}]\n"
            "supervised_agent._PAUSE = supervised_agent._REPEAT = 0.1\nsys.exit(slurm_job.main(sys.argv[1:]))\n"
        )
        arguments = ["--state-dir", str(place / "state"), "-D", "taskmanager.resource-id=tm-3"]
        arguments += ["-D", "jobmanager.rpc.address=127.0.0.1:8081"]
        for setting in settings:
            arguments += ["-D", setting]
        slurm = IN_SLURM if environment is None else environment
        self.process = subprocess.Popen(
            [sys.executable, "-c", run, *arguments], env={**os.environ, **slurm}, stderr=subprocess.PIPE, text=True
        )

    def starts(self) -> list[str]:
        path = self.place / "starts"
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.mark.req("BLK-10")
def test_the_node_and_the_job_decide_identity_address_and_directory(tmp_path: Path) -> None:
    for earlier in (1, 2, 3, 10, 11, 12, 41):
        (tmp_path / "state" / "taskmanagers" / "tm-3" / str(earlier)).mkdir(parents=True)
    job = Job(tmp_path)
    until(job.starts, "the task manager is started")
    (arguments,) = job.starts()
    own = tmp_path / "state" / "taskmanagers" / "tm-3"
    for setting in (
        "taskmanager.node-id=node-7",
        "taskmanager.host=127.0.0.1",
        f"process.taskmanager.working-dir={own / '42'}",
    ):
        assert f"-D {setting}" in arguments
    (own / "42" / "logs").mkdir(parents=True)
    (own / "42" / "jobs").mkdir()
    (own / "42" / "slots.record").touch()
    job.process.send_signal(signal.SIGTERM)
    assert job.end()[0] == 0
    assert [each.name for each in (own / "42").iterdir()] == ["logs"]
    assert sorted(int(each.name) for each in own.iterdir()) == [3, 10, 11, 12, 41, 42]


@pytest.mark.req("BLK-10")
def test_a_directory_in_which_a_task_manager_of_another_cluster_works_stays(tmp_path: Path) -> None:
    place = tmp_path / "scratch" / "tm-3"
    for earlier in range(1, 9):
        (place / str(earlier) / "jobs").mkdir(parents=True)
    with held(place / "2" / "lock", "task manager tm-3 of another cluster", hint=""):
        job = Job(tmp_path, f"process.taskmanager.working-dir={tmp_path / 'scratch'}")
        until(job.starts, "the task manager is started")
        assert sorted(int(each.name) for each in place.iterdir()) == [2, 4, 5, 6, 7, 8]
        assert (place / "2" / "jobs").is_dir()
        job.process.send_signal(signal.SIGTERM)
        assert job.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_signals_reach_the_task_manager(tmp_path: Path, number: signal.Signals) -> None:
    job = Job(tmp_path)
    until(job.starts, "the task manager is started")
    job.process.send_signal(number)
    assert job.end()[0] == 0
    if number is signal.SIGUSR1:
        assert (tmp_path / "signal").read_text() == str(int(number))


def test_a_task_manager_that_is_still_starting_learns_later_that_it_must_drain(tmp_path: Path) -> None:
    job = Job(tmp_path, late=1.0)
    until(job.starts, "the task manager is started")
    job.process.send_signal(signal.SIGUSR1)
    assert job.end()[0] == 0
    assert (tmp_path / "signal").read_text() == str(int(signal.SIGUSR1))


def test_a_task_manager_that_crashes_is_started_again_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    job = Job(tmp_path)
    until(lambda: len(job.starts()) == 2, "the task manager is started again")
    assert len(set(job.starts())) == 1
    job.process.send_signal(signal.SIGTERM)
    assert job.end()[0] == 0


def test_the_task_manager_offers_the_gpus_that_slurm_gives_to_the_job(tmp_path: Path) -> None:
    settings = ("resourcemanager.slurm.gres=gpu:a100:2", "taskmanager.resources.addresses=fpga=f0")
    job = Job(tmp_path, *settings, environment={**IN_SLURM, "CUDA_VISIBLE_DEVICES": "1,3"})
    until(job.starts, "the task manager is started")
    assert "taskmanager.resources.addresses=fpga=f0;gpu=1,3" in job.starts()[0].split()
    job.process.send_signal(signal.SIGTERM)
    assert job.end()[0] == 0


@pytest.mark.parametrize(
    ("printed", "visible", "said"),
    [
        (None, "", "this Slurm job has no custom resources, and not 2 gpu"),
        (None, "0", "this Slurm job has 1 gpu, and not 2 gpu"),
        ('{"name": "gpu", "addresses": ["0"]}', "0,1", "this Slurm job has 1 gpu, and not 2 gpu"),
    ],
)
def test_a_job_with_fewer_gpus_than_asked_for_starts_nothing(
    tmp_path: Path, printed: str | None, visible: str, said: str
) -> None:
    settings = ["resourcemanager.slurm.gres=gpu:2"]
    if printed is not None:
        script = tmp_path / "discover"
        script.write_text(f"#!/bin/sh\necho '{printed}'\n")
        script.chmod(0o700)
        settings.append(f"taskmanager.resources.discovery-scripts=gpu={script}")
    job = Job(tmp_path, *settings, environment={**IN_SLURM, "CUDA_VISIBLE_DEVICES": visible})
    code, errors = job.end()
    assert code == 1
    assert said in errors
    assert job.starts() == []


def test_outside_of_slurm_it_says_so(tmp_path: Path) -> None:
    code, errors = Job(tmp_path, environment={"SLURM_JOB_ID": "", "SLURMD_NODENAME": ""}).end()
    assert code == 1
    assert "this is not a Slurm job" in errors


@pytest.mark.parametrize("quorum", ["a..b:2181,127.0.0.1:2181", "127.0.0.1", "a..b,127.0.0.1:2181/emberkeep"])
def test_one_zookeeper_server_with_an_address_is_enough_to_find_the_nodes_own(quorum: str) -> None:
    configuration = Configuration().with_texts({"high-availability.zookeeper.quorum": quorum}, "test")
    assert slurm_job._address(configuration) == "127.0.0.1"
