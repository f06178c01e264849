"""A Spark Connect server as a job: its address stays while leader and driver are killed, and several users share it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import DEADLINE, until
from tests.integration.doors.connect_scripts import ASKING, NOTEBOOK, USER

pytestmark = [pytest.mark.integration, pytest.mark.long]


@contextmanager
def opened(shell: Shell, *options: str) -> Iterator[Running]:
    """`emberkeep connect open`, once it has printed the address."""
    command = shell.start("connect", "open", "--port", "0", *options)
    try:
        until(lambda: "\n" in command.out or command.process.poll() is not None, lambda: str(command), 120)
        yield command
    finally:
        command.process.send_signal(signal.SIGINT)
        command.wait()


@contextmanager
def client(
    shell: Shell, script: str, *arguments: str, command: tuple[str, ...] = (), **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """``command``: that of Emberkeep which starts the client."""
    path = shell.write(f"client-{len(list(shell.work.glob('client-*')))}.py", script)
    starts = (str(shell.program), *command) if command else ()
    with subprocess.Popen(
        [*starts, sys.executable, str(path), *arguments],
        env={**shell.environment, "PYTHONWARNINGS": "ignore", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that the client prints; empty if it has ended, or prints none in time and is ended."""
    assert process.stdout is not None
    late = threading.Timer(DEADLINE, process.terminate)
    late.start()
    try:
        return process.stdout.readline().strip()
    finally:
        late.cancel()


def place_of(shell: Shell) -> Path:
    """A directory through which the test, clients and their tasks speak."""
    place = shell.directory / "place"
    place.mkdir()
    return place


def assert_refused(shell: Shell, address: str) -> None:
    with client(shell, NOTEBOOK, SPARK_REMOTE=address) as stranger:
        assert "UNAUTHENTICATED" in line(stranger)
        assert stranger.wait(DEADLINE) == 1


def test_clients_go_on_at_the_same_address_after_leader_and_driver_were_killed(cluster: Cluster) -> None:
    shell, place = cluster.shell, place_of(cluster.shell)
    job_id = JobId(shell.done("connect", "up", "-q", "--num-executors", "1", *SMALL).out.strip())
    assert shell.done("connect", "up", "-q").out.strip() == job_id  # it runs already
    with opened(shell) as command:
        address = command.out.strip()
        assert address.startswith("sc://localhost:"), command
        assert_refused(shell, address.partition(";")[0])
        assert_refused(shell, address.partition(";")[0] + ";token=another")
        with client(shell, NOTEBOOK, command=("connect", "exec")) as notebook:
            assert line(notebook) == "first 45", cluster.story(job_id)
            assert line(notebook) == "a query runs"
            cluster.wait_for(job_id, lambda job: job.emberkeep.active_stages, "the query's stage runs")
            cluster.kill("jobmanager")
            cluster.up()
            assert line(notebook) == "kept 7", cluster.story(job_id)
            with client(shell, ASKING, address, str(place)) as asking:
                until((place / "runs").exists, lambda: f"the other query runs: {cluster.story(job_id)}")
                os.kill(cluster.wait_for_driver(job_id), signal.SIGKILL)
                (place / "killed").touch()
                cluster.wait_for_driver(job_id, attempt=2)
                assert notebook.stdin is not None
                print(file=notebook.stdin, flush=True)
                # PySpark closes the session by the first condition, and its clean-up may meet the second one.
                assert line(notebook) in {"lost INVALID_HANDLE.SESSION_CHANGED", "lost NO_ACTIVE_SESSION"}
                assert line(asking) in {"lost INVALID_HANDLE.SESSION_CHANGED", "lost RESPONSE_ALREADY_RECEIVED"}
                assert line(notebook) == "second 55", cluster.story(job_id)
                assert line(asking) == "again 1", cluster.story(job_id)
                assert (notebook.wait(DEADLINE), asking.wait(DEADLINE)) == (0, 0)
        status = shell.done("connect", "status")
        assert "RUNNING" in status.out
        shell.done("connect", "down")
    refused = shell.run("connect", "open", job_id)
    assert refused.code != 0
    assert "runs no Spark Connect server" in refused.err, refused


def login(shell: Shell, name: str, role: str) -> tuple[str, ...]:
    """Make a token; return the options with which it is used."""
    file = shell.directory / f"{name}.token"
    file.touch(0o600)
    file.write_text(shell.done("token", "create", name, "--role", role).out)
    return "-D", f"security.token-file={file}"


def elastic_server(shell: Shell, logs: Path, *options: str) -> JobId:
    """A server without executors while it has nothing to do, whose idle sessions end soon."""
    conf = {
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
        "spark.connect.session.manager.maintenanceInterval": "1s",
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "5s",  # a client that waits is active as often
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": "false",
    }
    words = (word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))
    up = ("connect", "up", "-q", *options, "--session-timeout", "30s")
    return JobId(shell.done(*up, *SMALL, *words).out.strip())


def ended_sessions(logs: Path) -> set[tuple[str, str]]:
    """User and id of each session that has ended."""
    ends = "org.apache.spark.sql.connect.service.SparkListenerConnectSessionClosed"
    whole = (line for file in logs.rglob("events_*") for line in file.read_text().rpartition("\n")[0].splitlines())
    events = [json.loads(line) for line in whole if ends in line]
    return {(event["userId"], event["sessionId"]) for event in events}


def test_two_users_share_a_server_and_its_executors_but_not_their_sessions(cluster: Cluster) -> None:
    shell, place, logs = cluster.shell, place_of(cluster.shell), cluster.shell.directory / "event-logs"
    logs.mkdir()
    ann, ben = login(shell, "ann", "submitter"), login(shell, "ben", "operator")
    job_id = elastic_server(shell, logs, *ann)
    stranger = shell.run("connect", "open", "--port", "0", *login(shell, "eve", "submitter"))
    assert stranger.code != 0
    assert f"job {job_id} was submitted by 'ann'" in stranger.err, stranger
    with opened(shell, *ann) as first, opened(shell, *ben) as second:
        cluster.wait_for_driver(job_id)
        asked = ("ann", "ben", str(place), "10", "Asia/Tokyo"), ("ben", "ann", str(place), "20", "America/Lima")
        with (
            client(shell, USER, first.out.strip(), *asked[0]) as anns,
            client(shell, USER, second.out.strip(), *asked[1]) as bens,
        ):
            assert line(anns) == "views numbers of_ann", cluster.story(job_id)
            assert line(bens) == "views numbers of_ben"
            assert [line(anns), line(bens)] == ["own 45 20 Asia/Tokyo", "own 190 40 America/Lima"]
            assert [line(anns), line(bens)] == ["other TABLE_OR_VIEW_NOT_FOUND UNRESOLVED_ROUTINE"] * 2
            assert [line(anns), line(bens)] == ["taken"] * 2  # the other's session id makes a session without views
            assert [line(anns), line(bens)] == ["after 45", "after 190"]  # and its end is not the end of the other's
            running = {"runs-ann", "runs-ben"}
            until(lambda: running <= {file.name for file in place.iterdir()}, lambda: cluster.story(job_id))
            cluster.wait_for_executors(job_id, 2)  # one for each user
            (place / "both").touch()
            assert [line(anns), line(bens)] == ["together 0"] * 2
            cluster.wait_for(job_id, lambda job: not job.emberkeep.executors, "nobody needs the executors any more")
            ids = {name: (place / f"session-{name}").read_text() for name in ("ann", "ben")}
            until(lambda: ("ben", ids["ben"]) in ended_sessions(logs), "the idle session ends")
            assert ended_sessions(logs) == {("ben", ids["ben"]), ("ann", ids["ben"]), ("ben", ids["ann"])}
            (place / "ended").touch()
            assert line(anns) == "idle none: 45", cluster.story(job_id)
            assert line(bens) == "idle INVALID_HANDLE.SESSION_CLOSED"
            assert line(bens) == "again 20", cluster.story(job_id)
            assert (anns.wait(DEADLINE), bens.wait(DEADLINE)) == (0, 0)
    shell.done("connect", "down")
