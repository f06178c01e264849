"""The token of a person is replaced while a job of hers runs, by the documented steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.storage.test_storage_away import PLAIN

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-11")]

ROLE = ("--role", "submitter", "--namespace", "team")


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "user", class_archive.parent))
    try:
        cluster.up("--task-managers", "1", "--slots", "1", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


class Person:
    """Uses the cluster with the token in a file of hers."""

    def __init__(self, cluster: Cluster, file: Path) -> None:
        self.options = ("-D", f"security.token-file={file}")
        self._shell = cluster.shell
        self._file = file
        self._file.touch(0o600)

    def gets(self, token: str) -> None:
        self._file.write_text(token)

    def sees(self, *words: str) -> str:
        """What a command prints, or why it is refused."""
        ended = self._shell.run(*words, *self.options)
        return ended.out if ended.code == 0 else ended.err


def ids_and_states(cluster: Cluster) -> list[tuple[str, str]]:
    listed = json.loads(cluster.shell.done("token", "list", "-o", "json").out)["tokens"]
    return [(each["id"], each["state"]) for each in listed]


def test_a_named_token_is_replaced_while_its_holders_job_runs(cluster: Cluster, tmp_path: Path) -> None:
    shell, place = cluster.shell, tmp_path / "plain"
    place.mkdir()
    shell.write("plain.py", PLAIN)
    old, new = (Person(cluster, tmp_path / name) for name in ("old", "new"))
    old.gets(shell.done("token", "create", "ana", *ROLE).out)
    job_id = cluster.submit("plain.py", *old.options, arguments=(str(place),))
    driver = cluster.wait_for_driver(job_id)
    follows = shell.start("logs", "-f", job_id, *old.options)

    # Two are valid, and no third.
    new.gets(shell.done("token", "create", "ana", *ROLE).out)
    third = shell.run("token", "create", "ana", *ROLE)
    assert third.code != 0
    assert "ana" in third.err
    for each in (old, new):
        assert each.sees("token", "whoami") == "ana, role submitter, namespace team\n"
        assert job_id[:8] in each.sees("list", "--mine")

    (first, _), (second, _) = ids_and_states(cluster)
    shell.done("token", "revoke", first)
    assert ids_and_states(cluster) == [(first, "revoked"), (second, "valid")]
    assert "was revoked at" in old.sees("token", "whoami")
    until(lambda: follows.process.poll() is not None, lambda: str(follows))
    assert "was revoked at" in follows.err, follows
    assert new.sees("token", "whoami") == "ana, role submitter, namespace team\n"

    # The next leader knows it too. The job has noticed nothing.
    cluster.kill("jobmanager")
    cluster.up()
    assert cluster.wait_for_driver(job_id) == driver
    assert "was revoked at" in old.sees("list")
    assert job_id[:8] in new.sees("list", "--mine")
    assert ids_and_states(cluster) == [(first, "revoked"), (second, "valid")]
    shell.done("token", "create", "ana", *ROLE)  # for the next rotation

    entries = [json.loads(line) for line in shell.done("audit", "-o", "json").out.splitlines()]
    told = [entry for entry in entries if "/tokens" in json.dumps(entry)]
    assert len(told) >= 4, entries
    cluster.cancel(job_id)
    cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "it is cancelled")
