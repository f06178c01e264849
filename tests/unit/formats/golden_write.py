"""Writes golden files: ``python -m tests.unit.formats.golden_write DIRECTORY`` with a release's code on the path.

The files of a release are made once, from the code of its commit (a worktree of it, its ``src`` first in PYTHONPATH),
and are never made again: later code has to read what that release really wrote. ``golden_next`` has what came later.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import msgspec

from emberkeep.adapters.job_store import result_files
from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.graph_files import encode_handle
from emberkeep.adapters.processes.start import write_process_record
from emberkeep.adapters.state.copies_file import encode_end
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.webhdfs import port as gateway_port
from emberkeep.adapters.zookeeper.layout import encode_node
from emberkeep.api.file_sink.commit_log import CommitLog
from emberkeep.api.function_state import encode_state
from emberkeep.base.files.durable import encode_record, write_record
from emberkeep.base.started_task_managers import write_started
from emberkeep.client.clusters.cluster_file import write_cluster
from emberkeep.daemons.records.agent_files import SlotsFile, write_agent_life
from emberkeep.daemons.records.bound_files import write_artefacts
from emberkeep.daemons.records.driver_spec import write_outcome, write_spec
from emberkeep.lifecycle.manifest import encode_manifest
from emberkeep.spark.functions import states as function_states
from emberkeep.spark.jvm import class_archive
from emberkeep.spark.queries import checkpoints
from emberkeep.spark.stopping import restore
from emberkeep.taskmanager.libraries import archives as library_cache_archives
from tests.unit.formats import golden_samples as samples


class _SinkDisk:
    """``SinkFiles`` as far as an append to an empty log needs it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self, directory: str) -> list[str]:
        del directory
        return []

    def create(self, path: str, data: bytes) -> None:
        (self._directory / Path(path).name).write_bytes(data)


def write_all(to: Path) -> None:
    for directory in ("zookeeper", "task-manager", "spark", "gateway", "client", "results", "started"):
        (to / directory).mkdir(parents=True)
    asyncio.run(_job_store(to / "job-store"))
    for name, value in samples.ZOOKEEPER_NODES.items():
        (to / "zookeeper" / name).write_bytes(encode_node(value))
    (to / "zookeeper" / "handle").write_bytes(encode_handle(samples.HANDLE))
    result_files.INLINE_LIMIT = 0
    result_files.ResultFiles(to / "results", 7).write(samples.RESULT)
    _task_manager(to / "task-manager")
    write_started(to / "started", samples.STARTED)
    _spark(to / "spark")
    _gateway(to / "gateway")
    write_cluster(to / "client" / "cluster.json", samples.CLUSTER)


async def _job_store(to: Path) -> None:
    store = EmbeddedJobStore(to / "jobs.sqlite", to / "graphs")
    await store.open()
    job = samples.JOB
    await store.create(samples.GRAPH)
    await store.create(samples.ENDED_GRAPH)
    await store.record_attempt(job, samples.ATTEMPT.attempt, samples.HOME)
    await store.record_checkpoints(job, samples.ATTEMPT.attempt, (samples.CHECKPOINT,), (samples.SAVEPOINT,))
    await store.record_procedure_end(job, samples.ATTEMPT.attempt, samples.TRIGGER, None, stopped=True)
    await store.record_procedure(job, samples.REQUEST)
    await store.record_cancel(job)
    await store.record_result(samples.RESULT)
    await store.record_blocklist(samples.BLOCKLIST)
    await store.close()
    (to / "jobs.sqlite.lock").unlink()
    with sqlite3.connect(to / "jobs.sqlite") as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file
    connection.close()


def _task_manager(to: Path) -> None:
    SlotsFile(to / "slots.record").store(samples.AGENT_RECORD)
    write_agent_life(to / "agent.record", samples.AGENT_LIFE)
    write_process_record(to / "process.record", samples.PROCESS_RECORD)
    write_artefacts(to / "artefacts.record", samples.ARTEFACTS)
    write_spec(to / "spec.record", samples.DRIVER_SPEC)
    write_outcome(to / "outcome.record", samples.OUTCOME)
    kind, version = library_cache_archives.RECORD_KIND, library_cache_archives.RECORD_VERSION
    write_record(to / "complete.record", kind, version, samples.BOOT_ID.encode())


def _spark(to: Path) -> None:
    (to / "manifest").write_bytes(encode_manifest(samples.MANIFEST))
    for module, name, value in (
        (restore, "restored", samples.RESTORED),
        (function_states, "function-states", samples.KEPT_STATES),
    ):
        record = encode_record(module.RECORD_KIND, module.RECORD_VERSION, msgspec.json.encode(value))
        (to / name).write_bytes(record)
    (to / "queries.json").write_text(checkpoints.encode(samples.UNNAMED_QUERIES))
    CommitLog(_SinkDisk(to), "/out").append(samples.SINK_STATE)  # type: ignore[arg-type]
    for name, state in samples.FUNCTION_STATES.items():
        (to / f"state-{name}").write_bytes(encode_state(name, state))
    (to / "state-of-sink").write_bytes(encode_state("sink", samples.SINK_SNAPSHOT))
    kind, version = class_archive._RECORD_KIND, class_archive._RECORD_VERSION
    write_record(to / "class-archive.record", kind, version, str(samples.ARCHIVE_SIZE).encode())


def _gateway(to: Path) -> None:
    (to / "copy").write_bytes(samples.COPIED + encode_end(samples.COPY))
    kind, version = gateway_port._KIND, gateway_port._VERSION
    write_record(to / "port.record", kind, version, msgspec.json.encode(samples.GATEWAY_PORT))
    journal = FileRenameJournal(to / "renames", lambda: samples.NOW_MS)
    journal.begin(samples.RENAME)
    journal.begin(samples.VOID_RENAME)
    journal.void(samples.VOID_RENAME)
    journal.close()


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
