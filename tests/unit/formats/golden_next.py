"""Formats that came after the newest release, with their golden files in ``golden/next``.

Who adds a kind of record, a version of one, or a field or table to one that exists adds an entry to FORMATS and runs
this module with ``python -m``, which writes the files that are not there yet. The next release takes them over.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.adapters.backups.manifest import decode_manifest, encode_manifest
from emberkeep.adapters.backups.node_records import Node, NodesRecord, encode_nodes, read_nodes
from emberkeep.adapters.ha_blobs.place import Binding, read_binding, write_binding
from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.adapters.job_store.records import StoredAttempt, decode_result, encode_result
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.adapters.job_store.unfinished_restore import UnfinishedRestore, read_unfinished, write_unfinished
from emberkeep.adapters.kept_logs.segments import decompress, encode_piece, scan_segment
from emberkeep.adapters.leader_news.file import read_leader_file, write_leader_file
from emberkeep.adapters.shared_storage.marks import read_marks, write_marks
from emberkeep.adapters.slurm.ended_jobs import read_ended, write_ended
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, signing_key
from emberkeep.adapters.zookeeper.layout import LeaderRecord, RegisteredAddress, ResultNode, decode_node, encode_node
from emberkeep.backups.model import BackedUpJob, BackupManifest, BlobOwner, Member, StoreKind
from emberkeep.base.compatible import Compatible
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Damaged
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, decode_owner, encode_owner
from emberkeep.base.identity import Role
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.blocklist.model import BlockAction, BlockedTaskManager, EvacuatedDrivers
from emberkeep.chronicle.lines import decode_line, encode_line
from emberkeep.chronicle.occurrence import Occurrence, What, occurrence_id
from emberkeep.client.clusters.cluster_file import ClusterRecord, read_cluster, write_cluster
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.daemons.records.driver_spec import read_outcome, read_spec, write_outcome, write_spec
from emberkeep.daemons.records.late_variables import read_late_variables, write_late_variables
from emberkeep.daemons.records.record_versions import RecordVersions, read_versions, write_versions
from emberkeep.identities.model import NamedToken, NamedTokens
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.leftovers import Kind, Mark
from emberkeep.jobs.model import FailureKind
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.encoding import decode_progress, encode_progress
from emberkeep.jobs.progress.history import QueryHistory
from emberkeep.jobs.progress.kept_progress import KeptProgress
from emberkeep.jobs.progress.kept_work import KeptWork
from emberkeep.jobs.progress.work import AttemptWork, ExecutorWork, StageProgress
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.kept_logs.model import PieceHeader
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.lifecycle.model import Procedure
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.notifications.encoding import decode_waiting, encode_waiting
from emberkeep.notifications.model import EventKind, Notification, NotifiedJob
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import amounts
from emberkeep.taskmanager.agent_record import AgentRecord
from emberkeep.usage.encoding import decode_usage, encode_usage
from emberkeep.usage.histories import KeptHistories
from emberkeep.usage.history import KeptUsage
from tests.support.kept_logs.pieces import piece
from tests.support.progress.records import measured, record
from tests.unit.formats import golden_samples as samples

NEXT = Path(__file__).parent / "golden" / "next"

OWNER = Owner(
    cluster_id="c", kind=OwnedPlaceKind.WORKING_DIRECTORY, created_at_ms=1_700_000_000_000, holder="tm-1", place_id="p"
)
LEADER = LeaderNews(leader=LeaderAddress(7, "127.0.0.1:8081"), job_managers=("127.0.0.1:8081", "127.0.0.1:8082"))
REGISTERED = RegisteredAddress(
    address="127.0.0.1:8081",
    name="jm-1",
    host="node-1",
    process=ProcessIdentity(pid=4711, start_ticks=99, boot_id="b"),
    processes="pid:[1]",
)
REGISTERED_WITH_RELEASE = msgspec.structs.replace(REGISTERED, release="0.2.0")
LEADER_OF_EPOCH = LeaderRecord(address="127.0.0.1:8081", life="a", epoch=7)
SIGNER = RecordSigner(signing_key("token"))
MARKS = (Mark(job_id=JobId("1" * 32), kind=Kind.CHECKPOINTS, since_ms=1_700_000_000_000, ended=True),)

LATE_VARIABLES = {"EMBERKEEP_STATE_GATEWAY": "127.0.0.1:40001"}

BINDING = Binding(location="s3://bucket/emberkeep", place_id="p")


@dataclass(frozen=True)
class Format:
    """``read`` gives ``value`` for what ``write`` has written."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    value: object


# --- fields that came later, of formats that the newest release has ---------------------------------------------------

STORAGE_OWNER = msgspec.structs.replace(
    OWNER, kind=OwnedPlaceKind.STORAGE, holder="", belongs_to="lineage", parts=("checkpoints",)
)
RESTORED_OWNER = msgspec.structs.replace(STORAGE_OWNER, replaced=("lost",))
KEPT_RESULT = msgspec.structs.replace(samples.RESULT, keeps_data=True)
RESULT_IN_A_FILE: ResultNode = msgspec.structs.replace(
    samples.ZOOKEEPER_NODES["result-in-a-file"],
    file=ResultFile(location="2.7.result", size=1, sha256=samples.DIGEST, outline=KEPT_RESULT),
)
RESULT_THAT_KEEPS_DATA: ResultNode = msgspec.structs.replace(samples.ZOOKEEPER_NODES["result"], result=KEPT_RESULT)
SLOTS: AgentRecord = msgspec.structs.replace(
    samples.AGENT_RECORD, table=msgspec.structs.replace(samples.AGENT_RECORD.table, lineage="of-the-store")
)
SLOTS_OF_UNHEARD_LIVES: AgentRecord = msgspec.structs.replace(
    SLOTS, unconfirmed=(InstanceId("life-3"), InstanceId("life-4"))
)
GPUS = ResourceAddresses(name="gpu", addresses=("0", "1"))
_TABLE = samples.AGENT_RECORD.table
SLOTS_WITH_RESOURCES: AgentRecord = msgspec.structs.replace(
    samples.AGENT_RECORD,
    table=msgspec.structs.replace(
        _TABLE,
        slots=(
            msgspec.structs.replace(
                _TABLE.slots[0],
                allocation=msgspec.structs.replace(
                    _TABLE.slots[0].allocation,
                    profile=msgspec.structs.replace(
                        _TABLE.slots[0].allocation.profile, custom=amounts({"fpga": 1, "gpu": 2})
                    ),
                    addresses=(ResourceAddresses(name="fpga", addresses=("f",)), GPUS),
                ),
            ),
        ),
        drivers=(msgspec.structs.replace(_TABLE.drivers[0], addresses=(GPUS,)),),
    ),
)
SPEC = msgspec.structs.replace(samples.DRIVER_SPEC, leader="/var/tm-1/leader.record", checkpoints_recorded=True)
ENCRYPTED_SPEC = msgspec.structs.replace(SPEC, tls=TlsFiles("/state/tls/node.pem", "/state/tls/node.key", "/state/ca"))
SPEC_WITH_SECRETS = msgspec.structs.replace(
    SPEC, graph=msgspec.structs.replace(SPEC.graph, secrets={"DB_PASS": "c2VhbGVk"})
)
SPEC_WITH_NAMESPACE = msgspec.structs.replace(SPEC, namespace_claim=f"team-a.{'5' * 64}")
SPEC_WITH_BIND_HOST = msgspec.structs.replace(SPEC, bind_host="::")
SPEC_WITH_JOB_STORE = msgspec.structs.replace(SPEC, lineage="5" * 32, epoch=7)
SPEC_WITH_RESOURCES = msgspec.structs.replace(
    SPEC,
    resources_file="/var/tm-1/attempts/1/resources.json",
    graph=msgspec.structs.replace(
        SPEC.graph,
        resources=msgspec.structs.replace(
            SPEC.graph.resources, executor_resources={"gpu": 2}, driver_resources={"gpu": 1}
        ),
    ),
)
ENCRYPTED_CLUSTER: ClusterRecord = msgspec.structs.replace(samples.CLUSTER, ca="/state/tls/ca.pem")
CLUSTER_WITH_ZOOKEEPER: ClusterRecord = msgspec.structs.replace(
    ENCRYPTED_CLUSTER,
    zookeepers=(
        msgspec.structs.replace(
            samples.CLUSTER.zookeepers[0],
            server=msgspec.structs.replace(
                samples.CLUSTER.zookeepers[0].server,
                tls=TlsFiles("/state/tls/node.pem", "/state/tls/node.pem", "/state/tls/ca.pem"),
            ),
        ),
    ),
)
OUTCOME = msgspec.structs.replace(samples.OUTCOME, kind=FailureKind.SETUP, lasting=True)
RENAME_OF_A_USER = msgspec.structs.replace(
    samples.RENAME, caller=msgspec.structs.replace(samples.RENAME.caller, user_id=1001)
)
BLOCKED = BlockedTaskManager(
    id="tm-2",
    action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
    start_ms=samples.NOW_MS,
    end_ms=samples.NOW_MS + 5,
    causes=("by hand",),
    drivers=EvacuatedDrivers.RESTART,
)
BLOCKLIST = msgspec.structs.replace(samples.BLOCKLIST, entries=(BLOCKED,))
UPGRADE = Upgrade(
    upgrade_id="a" * 32,
    job_id=JobId("1" * 32),
    name="counts",
    new_id=JobId("2" * 32),
    back_id=JobId("3" * 32),
    batches=3,
    within_ms=600_000,
    restarts=2,
    phase=UpgradePhase.RETURNED,
    phase_ms=1_700_000_002_000,
    began_ms=1_700_000_000_000,
    target_directory="/savepoints",
    new=samples.GRAPH,
    back=samples.GRAPH,
    stop_deadline_ms=1_700_000_600_000,
    owner="ana",
    namespace="team",
    savepoint="/savepoints/savepoint-1",
    bases={"/checkpoints/1": 41},
    reason="the new job failed: no such column",
    canceled_by="ana",
    ended_ms=1_700_000_003_000,
)
TOKENS = NamedTokens(
    tokens=(
        NamedToken(
            id="0123456789",
            name="ci",
            role=Role.SUBMITTER,
            sha256=samples.DIGEST,
            created_ms=samples.NOW_MS,
            expires_ms=samples.NOW_MS + 5,
            namespace="team",
            revoked_ms=samples.NOW_MS + 4,
        ),
    )
)
OWNED_GRAPH = msgspec.structs.replace(samples.GRAPH, owner="ana", namespace="team")
OWNED_SPEC = msgspec.structs.replace(SPEC, graph=OWNED_GRAPH)
OWNED_RESULT: ResultNode = msgspec.structs.replace(
    samples.ZOOKEEPER_NODES["result"], result=msgspec.structs.replace(samples.RESULT, owner="ana", namespace="team")
)
POINTERS_WITH_PROCEDURE: JobPointers = msgspec.structs.replace(
    samples.POINTERS, savepoints=(msgspec.structs.replace(samples.SAVEPOINT, procedure=Procedure.DRAIN),)
)
PERIODIC_SAVEPOINT = msgspec.structs.replace(samples.SAVEPOINT, periodic=True, retired_ms=samples.NOW_MS + 5)
RESULT_AFTER_A_LOSS: ResultNode = msgspec.structs.replace(
    samples.ZOOKEEPER_NODES["result"],
    result=msgspec.structs.replace(
        samples.RESULT,
        exceptions=tuple(msgspec.structs.replace(each, executor="3") for each in samples.RESULT.exceptions),
    ),
)
POINTERS_WITH_PERIODIC_SAVEPOINTS: JobPointers = msgspec.structs.replace(
    samples.POINTERS, savepoints=(samples.SAVEPOINT, PERIODIC_SAVEPOINT)
)
ATTEMPT_WITH_PERIODIC_SAVEPOINT: StoredAttempt = msgspec.structs.replace(
    samples.ATTEMPT, procedure=msgspec.structs.replace(samples.REQUEST, periodic=True)
)
ATTEMPT_THAT_MOVES: StoredAttempt = msgspec.structs.replace(
    samples.ATTEMPT, procedure=msgspec.structs.replace(samples.REQUEST, procedure=Procedure.MOVE, attempt=3)
)
RESTORED_RESULT: ResultNode = msgspec.structs.replace(
    samples.ZOOKEEPER_NODES["result"],
    result=msgspec.structs.replace(
        samples.RESULT,
        savepoint="s3://bucket/savepoints/savepoint-1",
        savepoints=(
            SavepointPointer(
                path="/savepoints/savepoint-2",
                manifest_sha256=samples.DIGEST,
                created_ms=samples.NOW_MS,
                trigger_id="2" * 32,
                size=4096,
                duration_ms=1500,
            ),
        ),
    ),
)
UNRECORDED_BINDING = msgspec.structs.replace(BINDING, unrecorded=True)
VERSIONS = RecordVersions(outcome=1, artefacts=1)
MANIFEST = BackupManifest(
    made_ms=samples.NOW_MS,
    release="0.2.0",
    store=StoreKind.EMBEDDED,
    cluster_id="embedded-0123456789abcdef",
    identity="lineage",
    storage_id="p",
    epoch=1_700_000_000_000,
    storage="/mnt/emberkeep",
    checkpoints="/mnt/emberkeep/checkpoints",
    savepoints="/mnt/emberkeep/savepoints",
    records="jobs.sqlite",
    members=(Member(name="jobs.sqlite", size=4096, sha256=samples.DIGEST),),
    addresses=("127.0.0.1:8081",),
    jobs=(
        BackedUpJob(
            job_id=JobId("1" * 32),
            name="counts",
            attempt=3,
            graph=f"graphs/{'1' * 32}.graph",
            problem="the file of job is missing",
            batches={"/mnt/emberkeep/checkpoints/1": 41},
            savepoints=("/savepoints/1",),
            has_secrets=True,
        ),
    ),
    blobs=(BlobOwner(job_id=JobId("1" * 32), sha256=samples.DIGEST),),
    has_keys=True,
    problems=("the upgrade of a job lacks a file",),
)
MANIFEST_WITH_SAVEPOINTS_ELSEWHERE = msgspec.structs.replace(MANIFEST, savepoint_directory="s3a://kept/savepoints")
NODES = NodesRecord(epoch=7, nodes=(Node(path=f"attempts/{'1' * 32}", data=b"record"),))
UNFINISHED = UnfinishedRestore(manifest_sha256=samples.DIGEST, identity="lineage")
LOG_PIECE = piece(4096, b"one\n", is_last=True, until_ms=samples.NOW_MS, source=96)
DAMAGED = [(JobId("1" * 32), samples.NOW_MS)]


def _write_renames(path: Path) -> None:
    with contextlib.closing(FileRenameJournal(path, lambda: samples.NOW_MS)) as journal:
        journal.begin(RENAME_OF_A_USER)


def _read_renames(path: Path) -> tuple[Rename, ...]:
    """Return what the journal knows, of the same rename with a user and without."""
    with contextlib.closing(FileRenameJournal(path, lambda: samples.NOW_MS)) as journal:
        return tuple(each for each in (RENAME_OF_A_USER, samples.RENAME) if journal.knows(each))


def _read_log_piece(path: Path) -> tuple[PieceHeader, bytes]:
    content = path.read_bytes()
    scanned = scan_segment(content, str(path))
    if scanned.damaged or len(scanned.pieces) != 1:
        raise Damaged(f"{path}: readers of the log are told about a gap")
    stored = scanned.pieces[0]
    return stored.header, decompress(content[stored.at : stored.at + stored.size], stored.header, str(path))


def _write_job_store(path: Path) -> None:
    """With the tables that came after version 3 without a version of their own: ``storage`` and ``damaged_since``."""
    database = JobDatabase(path, path.with_name("graphs"), samples.NOW_MS)
    database.bind_storage("p")
    database.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for job_id, since_ms in DAMAGED:
            connection.execute("INSERT INTO damaged VALUES (?, x'00', x'00')", (job_id,))
            connection.execute("INSERT INTO damaged_since VALUES (?, ?)", (job_id, since_ms))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file


def _read_job_store(path: Path) -> object:
    database = JobDatabase(path, path.with_name("graphs"), samples.NOW_MS)
    try:
        return database.origin().storage, [(job.job_id, job.since_ms) for job in database.damaged()]
    finally:
        database.close()


def _node(value: Compatible) -> Format:
    return Format(
        lambda path: path.write_bytes(encode_node(value)),
        lambda path: decode_node(path.read_bytes(), type(value), where=path.name),
        value,
    )


OCCURRENCE = Occurrence(
    id=occurrence_id(7, 12),
    time_ms=samples.NOW_MS,
    what=What.ATTEMPT_ENDED,
    message="attempt 2 was lost: killed by signal 9",
    by="ana",
    job_id="1" * 32,
    attempt=2,
    task_manager="tm-1",
    node="node-1",
    details={"cause": "lost", "exit-code": "137"},
)


PROGRESS = KeptProgress(
    queries=(QueryHistory(query_id="q-1", records=(record(1, recorded_ms=1).as_older(), record(2, recorded_ms=2))),)
)

PROGRESS_WITH_INTERVAL = KeptProgress(
    queries=(QueryHistory(query_id="q-1", records=(record(1, recorded_ms=1, interval_ms=10_000),)),)
)

PROGRESS_WITH_METRICS = KeptProgress(
    queries=(QueryHistory(query_id="q-1", records=(msgspec.structs.replace(measured(1), recorded_ms=1),)),)
)

COURSE = Course(began_ms=1_795_000_000_000, step_ms=20_000, tasks=(3, 8), executors=(1, 2))

COURSE_WITH_COST = msgspec.structs.replace(
    COURSE,
    task_ms=(3_000, 9_000),
    gc_ms=(30, 90),
    shuffle_read=(1_024, 1_024),
    shuffle_written=(2_048, 4_096),
    spilled_memory=(0, 512),
    spilled_disk=(0, 64),
)

PROGRESS_WITH_COURSE = KeptProgress(queries=(), course=COURSE)

PROGRESS_WITH_COST = KeptProgress(queries=(), course=COURSE_WITH_COST)

WORK = AttemptWork(
    active_jobs=1,
    completed_jobs=1,
    active_stages=1,
    completed_stages=1,
    total_tasks=9,
    active_tasks=1,
    completed_tasks=8,
    failed_tasks=1,
    task_ms=9_000,
    gc_ms=90,
    shuffle_read=1024,
    shuffle_written=2048,
    spilled_memory=4096,
    spilled_disk=512,
    stages=(
        StageProgress(
            stage_id=1,
            stage_attempt=0,
            name="collect at app.py:5",
            status="COMPLETE",
            tasks=8,
            active=0,
            completed=8,
            failed=1,
            submitted_ms=1_795_000_000_000,
            median_ms=1_000,
            slowest_ms=2_000,
            spilled_memory=4096,
            spilled_disk=512,
        ),
    ),
    executors=(
        ExecutorWork(executor_id="0", task_ms=9_000, gc_ms=90, host="10.0.0.5", active=False, tasks=8, failed=1),
    ),
)

RESULT_WITH_WORK = msgspec.structs.replace(samples.RESULT, work=KeptWork(app_id="app-1", work=WORK, course=COURSE))

RESULT_WITH_COST = msgspec.structs.replace(
    samples.RESULT, work=KeptWork(app_id="app-1", work=WORK, course=COURSE_WITH_COST)
)

WORK_WITH_OPERATIONS = msgspec.structs.replace(
    WORK, stages=tuple(msgspec.structs.replace(stage, operations="Scan csv → Exchange") for stage in WORK.stages)
)
RESULT_WITH_OPERATIONS = msgspec.structs.replace(
    samples.RESULT, work=KeptWork(app_id="app-1", work=WORK_WITH_OPERATIONS, course=COURSE_WITH_COST)
)
WORK_WITH_RUNNING_TASK = msgspec.structs.replace(
    WORK, stages=tuple(msgspec.structs.replace(stage, running_ms=1_500) for stage in WORK.stages)
)
RESULT_WITH_RUNNING_TASK = msgspec.structs.replace(
    samples.RESULT, work=KeptWork(app_id="app-1", work=WORK_WITH_RUNNING_TASK, course=COURSE_WITH_COST)
)
RESULT_WITH_NUMBER = msgspec.structs.replace(samples.RESULT, attempt=2)

USAGE = KeptHistories(
    step_ms=10_000,
    task_managers={
        TaskManagerId("tm-1"): KeptUsage(
            since_ms=1_795_000_003_000,
            samples=struct.pack("<qfIIHH", 1_795_000_000_000, 12.5, 2_000, 4_000, 4, 1)
            + struct.pack("<qfIIHH", 1_795_000_010_000, 50.0, 2_500, 3_000, 4, 2),
            disk_low_since_ms=1_795_000_004_000,
        )
    },
)

USAGE_OF_A_DAY = msgspec.structs.replace(
    USAGE,
    task_managers={
        name: msgspec.structs.replace(
            usage, earlier=struct.pack("<qfIIHH", 1_794_999_600_000, 30.0, 3_000, 2_000, 4, 3)
        )
        for name, usage in USAGE.task_managers.items()
    },
)

USAGE_WITH_SLOTS = msgspec.structs.replace(
    USAGE_OF_A_DAY,
    cluster=KeptUsage(since_ms=1_795_000_003_000, samples=struct.pack("<qfIIHH", 1_795_000_000_000, 0.0, 0, 0, 8, 3)),
)

WAITING_NOTICES = [
    Notification(
        id="store-3-1",
        event=EventKind.ALARM_RAISED,
        time_ms=1_795_000_000_000,
        job=NotifiedJob(id=JobId("a" * 32), name="flights", namespace="team-a", attempt=2),
        message="no micro-batch was committed for 301 s",
        alarm="no-commit",
        query="delays",
        version=2,
    )
]

FORMATS = {
    "event": Format(
        lambda path: path.write_bytes(encode_line(OCCURRENCE)),
        lambda path: decode_line(path.read_bytes()),
        OCCURRENCE,
    ),
    "progress-history.record": Format(
        lambda path: path.write_bytes(encode_progress(PROGRESS)),
        lambda path: decode_progress(path.read_bytes(), where="progress"),
        PROGRESS,
    ),
    "usage-history.record": Format(
        lambda path: path.write_bytes(encode_usage(USAGE)),
        lambda path: decode_usage(path.read_bytes(), where="usage"),
        USAGE,
    ),
    "usage-history-of-a-day.record": Format(
        lambda path: path.write_bytes(encode_usage(USAGE_OF_A_DAY)),
        lambda path: decode_usage(path.read_bytes(), where="usage"),
        USAGE_OF_A_DAY,
    ),
    "webhook-waiting.record": Format(
        lambda path: path.write_bytes(encode_waiting(WAITING_NOTICES)),
        lambda path: decode_waiting(path.read_bytes(), where="webhook"),
        WAITING_NOTICES,
    ),
    "usage-history-with-slots.record": Format(
        lambda path: path.write_bytes(encode_usage(USAGE_WITH_SLOTS)),
        lambda path: decode_usage(path.read_bytes(), where="usage"),
        USAGE_WITH_SLOTS,
    ),
    "progress-history-with-interval.record": Format(
        lambda path: path.write_bytes(encode_progress(PROGRESS_WITH_INTERVAL)),
        lambda path: decode_progress(path.read_bytes(), where="progress"),
        PROGRESS_WITH_INTERVAL,
    ),
    "progress-history-with-metrics.record": Format(
        lambda path: path.write_bytes(encode_progress(PROGRESS_WITH_METRICS)),
        lambda path: decode_progress(path.read_bytes(), where="progress"),
        PROGRESS_WITH_METRICS,
    ),
    "progress-history-with-course.record": Format(
        lambda path: path.write_bytes(encode_progress(PROGRESS_WITH_COURSE)),
        lambda path: decode_progress(path.read_bytes(), where="progress"),
        PROGRESS_WITH_COURSE,
    ),
    "result-with-work": Format(
        lambda path: path.write_bytes(encode_result(RESULT_WITH_WORK)),
        lambda path: decode_result(path.read_bytes(), where="result"),
        RESULT_WITH_WORK,
    ),
    "progress-history-with-cost.record": Format(
        lambda path: path.write_bytes(encode_progress(PROGRESS_WITH_COST)),
        lambda path: decode_progress(path.read_bytes(), where="progress"),
        PROGRESS_WITH_COST,
    ),
    "result-with-cost": Format(
        lambda path: path.write_bytes(encode_result(RESULT_WITH_COST)),
        lambda path: decode_result(path.read_bytes(), where="result"),
        RESULT_WITH_COST,
    ),
    "result-with-operations": Format(
        lambda path: path.write_bytes(encode_result(RESULT_WITH_OPERATIONS)),
        lambda path: decode_result(path.read_bytes(), where="result"),
        RESULT_WITH_OPERATIONS,
    ),
    "result-with-running-task": Format(
        lambda path: path.write_bytes(encode_result(RESULT_WITH_RUNNING_TASK)),
        lambda path: decode_result(path.read_bytes(), where="result"),
        RESULT_WITH_RUNNING_TASK,
    ),
    "result-with-number": Format(
        lambda path: path.write_bytes(encode_result(RESULT_WITH_NUMBER)),
        lambda path: decode_result(path.read_bytes(), where="result"),
        RESULT_WITH_NUMBER,
    ),
    "jobs.sqlite": Format(_write_job_store, _read_job_store, ("p", DAMAGED)),
    "ownership-of-storage": Format(
        lambda path: path.write_bytes(encode_owner(STORAGE_OWNER)),
        lambda path: decode_owner(path.read_bytes(), where="ownership"),
        STORAGE_OWNER,
    ),
    "blocklist": _node(BLOCKLIST),
    "attempt-with-periodic-savepoint": _node(ATTEMPT_WITH_PERIODIC_SAVEPOINT),
    "attempt-that-moves": _node(ATTEMPT_THAT_MOVES),
    "checkpoints-with-periodic-savepoints": _node(POINTERS_WITH_PERIODIC_SAVEPOINTS),
    "checkpoints-with-procedure": _node(POINTERS_WITH_PROCEDURE),
    "named-tokens": _node(TOKENS),
    "job-upgrade": _node(UPGRADE),
    "blob-place-without-record": Format(
        lambda path: write_binding(path, UNRECORDED_BINDING), read_binding, UNRECORDED_BINDING
    ),
    "result": _node(RESULT_THAT_KEEPS_DATA),
    "result-of-an-owner": _node(OWNED_RESULT),
    "result-after-a-loss": _node(RESULT_AFTER_A_LOSS),
    "result-of-a-restored-job": _node(RESTORED_RESULT),
    "spec-of-an-owner.record": Format(lambda path: write_spec(path, OWNED_SPEC), read_spec, OWNED_SPEC),
    "result-in-a-file": _node(RESULT_IN_A_FILE),
    "renames-of-a-user": Format(_write_renames, _read_renames, (RENAME_OF_A_USER,)),
    "slots.record": Format(lambda path: SlotsFile(path).store(SLOTS), lambda path: SlotsFile(path).load(), SLOTS),
    "slots-with-resources.record": Format(
        lambda path: SlotsFile(path).store(SLOTS_WITH_RESOURCES),
        lambda path: SlotsFile(path).load(),
        SLOTS_WITH_RESOURCES,
    ),
    "slots-of-unheard-lives.record": Format(
        lambda path: SlotsFile(path).store(SLOTS_OF_UNHEARD_LIVES),
        lambda path: SlotsFile(path).load(),
        SLOTS_OF_UNHEARD_LIVES,
    ),
    "spec.record": Format(lambda path: write_spec(path, SPEC), read_spec, SPEC),
    "spec-with-encryption.record": Format(lambda path: write_spec(path, ENCRYPTED_SPEC), read_spec, ENCRYPTED_SPEC),
    "spec-with-namespace.record": Format(
        lambda path: write_spec(path, SPEC_WITH_NAMESPACE), read_spec, SPEC_WITH_NAMESPACE
    ),
    "spec-with-bind-host.record": Format(
        lambda path: write_spec(path, SPEC_WITH_BIND_HOST), read_spec, SPEC_WITH_BIND_HOST
    ),
    "spec-with-job-store.record": Format(
        lambda path: write_spec(path, SPEC_WITH_JOB_STORE), read_spec, SPEC_WITH_JOB_STORE
    ),
    "spec-with-resources.record": Format(
        lambda path: write_spec(path, SPEC_WITH_RESOURCES), read_spec, SPEC_WITH_RESOURCES
    ),
    "spec-with-secrets.record": Format(lambda path: write_spec(path, SPEC_WITH_SECRETS), read_spec, SPEC_WITH_SECRETS),
    "cluster.json": Format(lambda path: write_cluster(path, ENCRYPTED_CLUSTER), read_cluster, ENCRYPTED_CLUSTER),
    "cluster-with-zookeeper.json": Format(
        lambda path: write_cluster(path, CLUSTER_WITH_ZOOKEEPER), read_cluster, CLUSTER_WITH_ZOOKEEPER
    ),
    "outcome.record": Format(lambda path: write_outcome(path, OUTCOME), read_outcome, OUTCOME),
    "versions.record": Format(
        lambda path: write_versions(path.parent, VERSIONS), lambda path: read_versions(path.parent), VERSIONS
    ),
    "ownership": Format(
        lambda path: path.write_bytes(encode_owner(OWNER)),
        lambda path: decode_owner(path.read_bytes(), where="ownership"),
        OWNER,
    ),
    "known-leader": Format(lambda path: write_leader_file(path, LEADER), read_leader_file, LEADER),
    "leader": _node(LEADER_OF_EPOCH),
    "signed-leader": Format(
        lambda path: path.write_bytes(SIGNER.signed("/epoch", encode_node(LEADER_OF_EPOCH))),
        lambda path: decode_node(SIGNER.checked("/epoch", path.read_bytes()), LeaderRecord, where=path.name),
        LEADER_OF_EPOCH,
    ),
    "late-variables.record": Format(
        lambda path: write_late_variables(path, LATE_VARIABLES), read_late_variables, LATE_VARIABLES
    ),
    "kept-log.segment": Format(
        lambda path: path.write_bytes(encode_piece(LOG_PIECE)), _read_log_piece, (LOG_PIECE.header, b"one\n")
    ),
    "storage-deletions": Format(lambda path: write_marks(path, MARKS), read_marks, MARKS),
    "ownership-after-a-restore": Format(
        lambda path: path.write_bytes(encode_owner(RESTORED_OWNER)),
        lambda path: decode_owner(path.read_bytes(), where="ownership"),
        RESTORED_OWNER,
    ),
    "attempt-lost-with-its-cluster": _node(StoredAttempt(attempt=1007, over=True)),
    "backup-manifest.record": Format(
        lambda path: path.write_bytes(encode_manifest(MANIFEST)),
        lambda path: decode_manifest(path.read_bytes(), path.name),
        MANIFEST,
    ),
    "backup-manifest-with-savepoints-elsewhere.record": Format(
        lambda path: path.write_bytes(encode_manifest(MANIFEST_WITH_SAVEPOINTS_ELSEWHERE)),
        lambda path: decode_manifest(path.read_bytes(), path.name),
        MANIFEST_WITH_SAVEPOINTS_ELSEWHERE,
    ),
    "backup-nodes.record": Format(
        lambda path: path.write_bytes(encode_nodes(NODES)),
        lambda path: read_nodes(path.read_bytes(), where=path.name).record,
        NODES,
    ),
    "ended-slurm-jobs": Format(lambda path: write_ended(path, (7, 4711)), read_ended, frozenset({7, 4711})),
    "restoring": Format(
        lambda path: write_unfinished(path.parent, UNFINISHED),
        lambda path: read_unfinished(path.parent),
        UNFINISHED,
    ),
    "blob-place": Format(lambda path: write_binding(path, BINDING), read_binding, BINDING),
    "job-manager-address": Format(
        lambda path: path.write_bytes(encode_node(REGISTERED)),
        lambda path: decode_node(path.read_bytes(), RegisteredAddress, where="address"),
        REGISTERED,
    ),
    "job-manager-address-with-release": Format(
        lambda path: path.write_bytes(encode_node(REGISTERED_WITH_RELEASE)),
        lambda path: decode_node(path.read_bytes(), RegisteredAddress, where="address"),
        REGISTERED_WITH_RELEASE,
    ),
}


if __name__ == "__main__":
    for name, each in FORMATS.items():
        if not (NEXT / name).exists():
            each.write(NEXT / name)
