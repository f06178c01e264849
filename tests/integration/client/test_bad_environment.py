"""Machines that are not as they should be, and very many submissions: a clear word to each, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.client.clusters.cluster_file import read_cluster, write_cluster
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobResources, JobStatus
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import RegisterTaskManager, TaskManagerRegistered
from emberkeep.protocol.rest_submission import JobSubmission
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import until
from tests.support.certificates import node_tls

pytestmark = pytest.mark.integration


@contextmanager
def job_manager(shell: Shell, *definitions: str) -> Iterator[Endpoint]:
    """A JobManager alone, in the foreground of a command."""
    running = shell.start("jobmanager", *QUICK, *definitions)
    announced = json.loads(until(lambda: running.out if "\n" in running.out else "", lambda: str(running)))
    try:
        yield Endpoint(announced["url"], Path(announced["token_file"]).read_text().strip(), ca=announced["ca"])
    finally:
        running.process.send_signal(signal.SIGTERM)
        assert running.wait().code == 0


def status_of(shell: Shell, endpoint: Endpoint, job: str) -> tuple[str, str]:
    """State, and what it waits for, as ``info`` tells."""
    shown = json.loads(shell.done("info", job, "-o", "json", "--url", endpoint.url).out)["job"]
    return shown["state"], shown["emberkeep"]["waiting"]


def test_a_port_in_use_is_named(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (
            ("cluster", "up", "-D", f"rest.port={port}"),
            ("jobmanager", "-D", f"rest.port={port}"),
            ("taskmanager", "-D", f"taskmanager.rpc.port={port}"),
        ):
            ended = shell.run(*words)
            assert ended.code == 1, ended
            assert port in ended.err, ended
            assert "in use" in ended.err, ended
            key = words[-1].partition("=")[0]
            assert key in ended.err, ended
            assert "Traceback" not in ended.err
    assert not (shell.state / "cluster.json").exists()


def test_a_record_of_a_cluster_that_is_gone_harms_nobody(shell: Shell) -> None:
    cluster = Cluster(shell)
    cluster.up(*QUICK)
    for daemon in cluster.record.daemons:
        kill_process(daemon.identity.pid)
    until(lambda: not any(daemon.is_running for daemon in cluster.record.daemons), "they are dead")
    ended = shell.run("list")
    assert ended.code == 3, ended
    assert "no cluster found" in ended.err
    assert shell.run("cluster", "status").code == 3
    # Their pids belong to others by now: to this very process, for example.
    path = shell.state / "cluster.json"
    record = cluster.record
    stale = ProcessIdentity(pid=os.getpid(), start_ticks=1, boot_id=record.job_manager.identity.boot_id)
    daemons = [msgspec.structs.replace(daemon, identity=stale) for daemon in record.daemons]
    write_cluster(path, msgspec.structs.replace(record, job_manager=daemons[0], task_managers=tuple(daemons[1:])))
    ended = shell.run("cluster", "down")
    assert ended.code == 0, ended
    assert "no cluster is running" in ended.err
    # Neither does a record that was cut off.
    path.write_bytes(b'{"format": "emberkeep-cl')
    ended = shell.run("cluster", "up", *QUICK)
    assert ended.code == 1, ended
    assert f"{path} is damaged" in ended.err
    assert f"delete {path}" in ended.err
    path.unlink()
    cluster.up(*QUICK)
    assert read_cluster(path) is not None
    cluster.close()


OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"


@pytest.mark.long
def test_no_java_or_an_old_one_and_how_to_get_a_new_one(shell: Shell) -> None:
    shell.write("plain.py", "print('ran')\n")
    path = shell.directory / "bin"
    path.mkdir()
    without = {**shell.environment, "PATH": str(path)}
    without.pop("JAVA_HOME", None)
    for what in ("no Java runtime", "is Java 11"):
        for words in (("run", "plain.py"), ("cluster", "up", "-D", "rest.port=0")):
            ended = shell.run(*words, environment=without)
            assert ended.code == 1, ended
            assert what in ended.err, ended
            assert "apt-get install openjdk-17-jre-headless" in ended.err, ended
            assert "Traceback" not in ended.err, ended
            assert ended.out == ""
        (path / "java").write_text(OLD_JAVA)
        (path / "java").chmod(0o755)
    assert not (shell.state / "cluster.json").exists()
    assert not list((shell.state / "runs").iterdir())


def start_on_small_disk(shell: Shell, endpoint: Endpoint, size: str) -> Running:
    """A task manager whose working directory is a file system of ``size`` that nobody else sees."""
    directory = shell.directory / "small"
    directory.mkdir()
    command = [
        str(Path(sys.executable).with_name("emberkeep")),
        *("taskmanager", *QUICK, "-D", f"process.taskmanager.working-dir={directory}"),
        *("-D", f"jobmanager.rpc.address={urlsplit(endpoint.url).netloc}"),
    ]
    script = f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(directory))} && exec {shlex.join(command)}"
    namespace = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c", script]
    out, err = shell.directory / "small.out", shell.directory / "small.err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            namespace, cwd=shell.work, env=shell.environment, stdout=out_file, stderr=err_file, start_new_session=True
        )
    return Running(process, out, err)


WAITS = """
import os, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""


@pytest.mark.long
def test_a_full_disk_fails_the_job_that_needs_it_and_no_other(shell: Shell) -> None:
    with job_manager(shell) as endpoint:
        small = start_on_small_disk(shell, endpoint, "2m")
        until(lambda: small.out, lambda: str(small))
        gate = shell.directory / "gate"
        shell.write("waits.py", WAITS)
        waits = shell.start("run", *SMALL, "--url", endpoint.url, "waits.py", str(gate))
        until(lambda: "up" in waits.out, lambda: str(waits))
        (shell.work / "large.bin").write_bytes(os.urandom(4 * 1024**2))
        shell.write("plain.py", "print('ran')\n")
        run = ("run", *SMALL, "--url", endpoint.url, "-D", "restart-strategy.type=none")
        ended = shell.run(*run, "--files", "large.bin", "plain.py")
        assert ended.code == 1, ended
        assert "No space left on device" in ended.err.splitlines()[-1], ended
        ended = shell.run(*run, "plain.py")
        assert (ended.code, ended.out) == (0, "ran\n"), ended
        gate.touch()
        assert waits.wait().code == 0
        assert small.process.poll() is None, small
        small.process.send_signal(signal.SIGTERM)
        assert small.wait().code == 0


def fake_task_manager(python: str) -> TaskManagerInfo:
    return TaskManagerInfo(
        id=TaskManagerId("tm-other"),
        instance=InstanceId("0" * 32),
        address="127.0.0.9:9",
        host="127.0.0.9",
        node_id="127.0.0.9",
        pid=1,
        slots=2,
        driver_places=2,
        total=ResourceProfile(cores=2, memory_mb=8192),
        runtime=RuntimeVersions(python=python, spark="4.3.0"),
        java_major=17,
        started_ms=1,
    )


def test_a_cluster_of_another_python_is_told_apart(shell: Shell) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    shell.write("plain.py", "print('ran')\n")

    async def register(endpoint: Endpoint) -> TaskManagerRegistered:
        rpc = HttpRpcClient(endpoint.token, tls=node_tls(Path(endpoint.ca)).client)
        try:
            request = RegisterTaskManager(
                info=fake_task_manager("3.9"), report=TaskManagerReport(sequence=1, allocations=(), drivers=())
            )
            return await rpc.call(urlsplit(endpoint.url).netloc, request, TaskManagerRegistered, timeout=30.0)
        finally:
            await rpc.close()

    with job_manager(shell, "-D", "heartbeat.timeout=10min") as endpoint:
        submit = ("submit", "-q", "--url", endpoint.url, "plain.py")
        job_id = shell.done(*submit).out.strip()
        until(
            lambda: "no task manager is registered" in status_of(shell, endpoint, job_id)[1], "it waits for any at all"
        )
        asyncio.run(register(endpoint))
        until(
            lambda: f"no task manager has Python {own}" in status_of(shell, endpoint, job_id)[1],
            lambda: str(status_of(shell, endpoint, job_id)),
        )
        assert status_of(shell, endpoint, job_id)[0] == "CREATED"
        ended = shell.run(*submit)
        assert ended.code == 2, ended
        assert f"no task manager has Python {own} (registered: Python 3.9)" in ended.err
        shell.done("cancel", job_id, "--url", endpoint.url)


def submission(number: int) -> JobSubmission:
    return JobSubmission(
        name=f"job {number}",
        entry_point=EntryPoint(kind=EntryPointKind.MODULE, name="this"),
        arguments=[],
        artefacts=[],
        spark_conf={},
        options={},
        working_directory="",
        resources=JobResources(
            driver_memory_mb=512,
            driver_overhead_mb=384,
            executors=1,
            executor_cores=1,
            executor_memory_mb=512,
            executor_overhead_mb=384,
        ),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        idempotency_key=f"key-{number}",
    )


@pytest.mark.long
def test_a_hundred_submissions_at_once_are_all_kept_listed_and_cancelled(shell: Shell) -> None:
    limits = ("-D", "log.max-size=16k", "-D", "log.files=2", "-D", "jobstore.max-capacity=60")

    async def submit_all(endpoint: Endpoint) -> list[JobId]:
        async with RestClient(endpoint, patience=60.0) as client:
            answers = await asyncio.gather(*(client.submit(submission(number)) for number in range(100)))
            again = await client.submit(submission(7))
            assert (again.created, again.jobid) == (False, answers[7].jobid)
            return [answer.jobid for answer in answers]

    async def cancel_all(endpoint: Endpoint, jobs: list[JobId]) -> None:
        async with RestClient(endpoint, patience=60.0) as client:
            await asyncio.gather(*(client.cancel(job) for job in jobs))

    def states(endpoint: Endpoint) -> dict[str, str]:
        listed = json.loads(shell.done("list", "-o", "json", "--url", endpoint.url).out)
        return {job["jid"]: job["state"] for job in listed}

    with job_manager(shell, *limits) as endpoint:
        jobs = asyncio.run(submit_all(endpoint))
        assert len(set(jobs)) == 100
        assert states(endpoint) == dict.fromkeys(jobs, "CREATED")
    # All of them were durable before they were answered.
    with job_manager(shell, *limits) as endpoint:
        assert states(endpoint) == dict.fromkeys(jobs, "CREATED")
        asyncio.run(cancel_all(endpoint, jobs))
        until(
            lambda: set(states(endpoint).values()) == {JobStatus.CANCELED.value}, lambda: str(states(endpoint)), 120.0
        )
        assert len(states(endpoint)) <= 60
    logs = sorted((shell.state / "jobmanager" / "logs").glob("jobmanager.log*"))
    assert [path.name for path in logs] == ["jobmanager.log", "jobmanager.log.1", "jobmanager.log.2"]
    assert all(path.stat().st_size <= 16 * 1024 for path in logs)
