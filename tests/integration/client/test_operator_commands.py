"""What operators see of a real cluster in a terminal: `doctor`, `top` and `list --watch`, as processes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from emberkeep import __version__
from emberkeep.diagnosis.model import Finding, Report, Severity
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

NODES = ("127.0.0.2", "127.0.0.3")
PATIENT = ("-D", "heartbeat.timeout=60s")  # a task manager that was killed is missed, and not yet forgotten
_MACHINE, _CLUSTER = {"java", "descriptors", "storage", "disk"}, {"zookeeper", "port", "certificate", "clock"}
CHECKS = _MACHINE | _CLUSTER | {"versions", "settings"}
# Argument: a file; it ends once that is there.
WAITS = """
import sys, time
from pathlib import Path
print("it waits", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("operators"), class_archive.parent))
    try:
        cluster.up("--ha", "--job-managers", "2", "--nodes", ",".join(NODES), "--slots", "1", *QUICK, *PATIENT)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def diagnosed(cluster: Cluster) -> tuple[int, list[Finding]]:
    """The exit code of `emberkeep doctor`, and its findings."""
    ended = cluster.shell.run("doctor", "-o", "json")
    return ended.code, msgspec.json.decode(ended.out, type=Report).findings


def test_doctor_looks_at_every_process_and_finds_the_one_that_is_lost(cluster: Cluster) -> None:
    code, findings = diagnosed(cluster)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert (code, errors) == (0, [])
    assert {finding.check for finding in findings} >= CHECKS

    record = cluster.record
    managers = {url.partition("://")[2] for url in (record.url, *record.standby_urls)}
    task_managers = {each.path: each.id for each in cluster.ask(lambda client: client.task_managers())}
    assert len(managers) == 2
    assert len(task_managers) == 2
    for check in ("port", "certificate", "clock"):
        seen = [finding.where for finding in findings if finding.check == check and finding.severity is Severity.OK]
        for address in (*managers, *task_managers):
            assert any(where.startswith(address) for where in seen), (check, address, seen)
    versions = {each.where: each for each in findings if each.check == "versions"}
    assert {each.severity for each in versions.values()} == {Severity.OK}
    assert {f"JobManager {address}" for address in managers} <= versions.keys()
    assert all(versions[f"JobManager {address}"].what == f"Emberkeep {__version__}" for address in managers)
    for identifier in task_managers.values():
        (of_node,) = (each.what for where, each in versions.items() if f"task manager {identifier} " in where)
        assert of_node.startswith("Python 3.")

    lost = cluster.daemon(f"tm-{NODES[1]}")
    address = next(path for path, identifier in task_managers.items() if identifier == lost.name)
    cluster.kill(lost.name)
    code, findings = diagnosed(cluster)
    (error,) = (finding for finding in findings if finding.severity is Severity.ERROR)
    assert (code, error.check) == (1, "port")
    assert address in error.where + error.what
    assert error.fix
    shown = cluster.shell.run("doctor")
    assert shown.code == 1
    assert shown.out.startswith("ERROR    port: ")
    cluster.up()
    assert diagnosed(cluster)[0] == 0


def test_top_shows_jobs_and_nodes_and_a_watched_list_follows_a_job(cluster: Cluster) -> None:
    shell = cluster.shell
    shell.write("waits.py", WAITS)
    finish = shell.directory / "finish"
    job_id = cluster.submit("waits.py", "--name", "the waiting one", arguments=(str(finish),))
    cluster.wait_for_driver(job_id)
    top = shell.done("top").out
    assert "1 unfinished job · 2 task managers" in top
    assert all(text in top for text in ("the waiting one", job_id[:8], *NODES))

    watching = {form: shell.start("list", "--watch", "--output", form) for form in ("wide", "json", "yaml")}
    for running in watching.values():
        until(lambda running=running: "RUNNING" in running.out, lambda running=running: str(running))  # type: ignore[misc]
    finish.touch()
    cluster.wait_for_end(job_id)
    for running in watching.values():
        until(lambda running=running: "FINISHED" in running.out, lambda running=running: str(running))  # type: ignore[misc]
        running.process.send_signal(signal.SIGINT)
        assert running.wait().code == 0, running
    documents = list(yaml.safe_load_all(watching["yaml"].out))
    assert [job["state"] for job in (documents[0][0], documents[-1][0])] == ["RUNNING", "FINISHED"]
    last = watching["json"].out.rstrip().rpartition("\n]\n")[2]
    assert [(job["jid"], job["state"]) for job in json.loads(last)] == [(job_id, JobStatus.FINISHED.value)]
    assert job_id in watching["wide"].out, "a wide table has whole ids"
