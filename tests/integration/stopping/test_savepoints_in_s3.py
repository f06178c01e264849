"""Savepoints in an object store, by the commands of a user; checkpoints there, and in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.counted_windows import SCRIPT, Rows, stopped, wait_for_window
from tests.integration.s3_server import S3Server, s3_server

pytestmark = [pytest.mark.integration, pytest.mark.long]

BUCKET = "production"
SAVEPOINTS = f"s3://{BUCKET}/savepoints"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path) as server:
        server.request("PUT", BUCKET)
        yield server


@pytest.fixture
def cluster(shell: Shell, server: S3Server) -> Iterator[Cluster]:
    shell.environment.update(server.environment)
    cluster = Cluster(shell)
    target = ("-D", f"execution.checkpointing.savepoint-dir={SAVEPOINTS}")
    gateway = ("-D", "state.backend.local-recovery=true")
    cluster.up("-D", "taskmanager.numberOfTaskSlots=1", *gateway, *target, *QUICK)
    yield cluster
    cluster.cancel_all()
    cluster.close()


@pytest.mark.req("END-4", "END-5", "END-6")
def test_made_verified_stopped_with_restored_drained_and_disposed_of(
    cluster: Cluster, server: S3Server, tmp_path: Path
) -> None:
    rows, shell = Rows(tmp_path / "rows"), cluster.shell
    script = tmp_path / "counts.py"
    script.write_text(SCRIPT)
    rows.more()
    rows.more()
    # The checkpoint lies in the bucket, too: the state gateway keeps it there.
    checkpoint = ("--conf", f"spark.sql.streaming.checkpointLocation=s3://{BUCKET}/checkpoints")
    job = cluster.submit(script, *checkpoint, arguments=(str(rows.place),))
    wait_for_window(cluster, job, rows, 0)

    early = shell.done("savepoint", "create", job).out.strip()
    assert early.startswith(f"{SAVEPOINTS}/savepoint-{job[:8]}-")
    prefix = early.removeprefix(f"s3://{BUCKET}/")
    shell.done("savepoint", "verify", early)
    flipped = _flip_a_byte(server, prefix)
    damaged = shell.run("savepoint", "verify", early)
    assert damaged.code == 1, damaged
    assert flipped in damaged.out
    refused = shell.run("stop", job, "--savepoint-path", "s3://no-such-bucket-here/savepoints")
    assert refused.code == 1, refused
    assert "bucket does not exist" in refused.err

    rows.more()
    wait_for_window(cluster, job, rows, 10)
    assert cluster.job(job).emberkeep.attempt == 1, "it goes on as if nothing had been asked"
    suspended = stopped(cluster, job)
    assert rows.afterwards() == 1

    rows.more()
    # The next one keeps its checkpoint in a directory that Spark writes to by itself.
    directory = ("-D", "state.backend.local-recovery=false")
    again = cluster.submit(script, "--from-savepoint", suspended, *directory, arguments=(str(rows.place),))
    wait_for_window(cluster, again, rows, 30)
    drained = stopped(cluster, again, "--drain")
    assert rows.counted() == rows.answer()
    shell.done("savepoint", "verify", drained)
    assert drained in shell.done("savepoint", "list").out

    shell.done("savepoint", "dispose", early)
    assert "no savepoint exists at" in shell.run("savepoint", "show", early).err
    left = {key.split("/")[1] for key in server.keys(BUCKET) if key.startswith("savepoints/")}
    assert left == {path.rpartition("/")[2] for path in (suspended, drained)}
    assert server.unfinished_uploads(BUCKET) == 0


def _flip_a_byte(server: S3Server, prefix: str) -> str:
    """In the newest offsets of the savepoint; returns the file's name below it."""
    key = max(key for key in server.keys(BUCKET) if key.startswith(f"{prefix}/") and "/offsets/" in key)
    content = server.request("GET", f"{BUCKET}/{key}")
    server.request("PUT", f"{BUCKET}/{key}", bytes([content[0] ^ 1]) + content[1:])
    return key.removeprefix(f"{prefix}/")
