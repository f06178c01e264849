"""What the golden files hold: one value for each persisted format, with every field of that release set.

Only fields of release 0.1.0 may be named here: its own code builds the same values when the files are made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from emberkeep.adapters.job_store.graph_files import StateHandle
from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.job_store.result_files import ResultFile
from emberkeep.adapters.processes.start import ProcessRecord
from emberkeep.adapters.zookeeper.layout import Cleaning, KeyNode, LatchRecord, LeaderRecord, ResultNode
from emberkeep.api.file_sink.model import PartFile, Piece, SinkState, SinkWriter
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.base.started_task_managers import StartedRecord
from emberkeep.blocklist.model import (
    BlockAction,
    BlockedNode,
    BlockedTaskManager,
    Blocklist,
    EvacuatedDrivers,
    Place,
    PlaceKind,
    Removal,
)
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord, ZooKeeperRecord
from emberkeep.client.clusters.zookeeper_ensemble import ZooKeeperServer
from emberkeep.daemons.records.agent_files import AgentLife
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.model import (
    Artefact,
    ArtefactRole,
    AttemptOutcome,
    AttemptRecord,
    DriverHome,
    EntryPoint,
    EntryPointKind,
    ExceptionEntry,
    FailureKind,
    JobGraph,
    JobResources,
    JobResult,
    JobStatus,
)
from emberkeep.lifecycle.manifest import FunctionState, Manifest, QuerySavepoint, described, function_file
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import Caller, CopyRecord, StatePath
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.fences import FenceRecord
from emberkeep.slots.table.record import DriverRecord, SlotRecord, TableRecord
from emberkeep.slots.table.slot import SlotState
from emberkeep.spark.functions.states import KeptStates
from emberkeep.spark.queries.checkpoints import QueryIdentity, QueryRecord
from emberkeep.spark.stopping.restore import RestoredCheckpoint
from emberkeep.taskmanager.agent_record import AgentRecord, OutcomeRecord
from emberkeep.taskmanager.libraries.cache import BoundFile

JOB, ENDED_JOB = JobId("1" * 32), JobId("2" * 32)
TRIGGER, DIGEST = "3" * 32, "4" * 64
NOW_MS = 1_700_000_000_000

ARTEFACTS = (
    Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256=DIGEST, size=10),
    Artefact(role=ArtefactRole.ARCHIVE, name="env.zip", sha256=DIGEST, size=20, fragment="env"),
)
GRAPH = JobGraph(
    job_id=JOB,
    name="flüge",
    entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py", source_path="/data/u/app.py"),
    arguments=("--day", "ä"),
    artefacts=ARTEFACTS,
    spark_conf={"spark.x": "1"},
    options={"restart-strategy.type": "fixed-delay"},
    working_directory="/data/u",
    resources=JobResources(
        driver_memory_mb=512,
        driver_overhead_mb=128,
        executors=2,
        executor_cores=1,
        executor_memory_mb=512,
        executor_overhead_mb=128,
    ),
    python="3.11",
    submitted_ms=NOW_MS,
    idempotency_key="key 1",
    savepoint="file:/savepoints/s",
)
HANDLE = StateHandle(location=f"{JOB}.7.graph", size=100, sha256=DIGEST, graph_version=1)
HOME = DriverHome(task_manager=TaskManagerId("tm-1"), node_id="node-1", instance=InstanceId("i1"))
REQUEST = ProcedureRequest(
    trigger_id=TRIGGER,
    procedure=Procedure.SAVEPOINT,
    target_directory="file:/savepoints",
    requested_ms=NOW_MS,
    deadline_ms=NOW_MS + 1,
)
ATTEMPT = StoredAttempt(attempt=3, canceled=True, home=HOME, procedure=REQUEST, stopped=TRIGGER)
CHECKPOINT = QueryCheckpoint(
    query="flights", query_id="q1", location="/checkpoints/q", batch_id=5, triggered_ms=NOW_MS, committed_ms=NOW_MS + 1
)
SAVEPOINT = SavepointPointer(path="file:/savepoints/s", manifest_sha256=DIGEST, created_ms=NOW_MS, trigger_id=TRIGGER)
POINTERS = JobPointers(attempt=3, queries=(CHECKPOINT,), savepoints=(SAVEPOINT,))
OUTCOME = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="ValueError: ä", traceback="Traceback …")
RESULT = JobResult(
    job_id=ENDED_JOB,
    name="ended",
    status=JobStatus.FAILED,
    exit_code=1,
    root_cause="ValueError: ä",
    submitted_ms=NOW_MS,
    ended_ms=NOW_MS + 9,
    attempts=(
        AttemptRecord(
            attempt=1, task_manager=TaskManagerId("tm-1"), started_ms=NOW_MS, ended_ms=NOW_MS + 8, outcome=OUTCOME
        ),
    ),
    exceptions=(
        ExceptionEntry(timestamp_ms=NOW_MS, attempt=1, kind="lost", message="m", traceback="t", task_manager="tm-1"),
    ),
    idempotency_key="key 2",
)
ENDED_GRAPH = msgspec.structs.replace(GRAPH, job_id=ENDED_JOB, name="ended", idempotency_key="key 2", savepoint="")
BLOCKLIST = Blocklist(
    revision=9,
    entries=(
        BlockedNode(
            id="node-1",
            action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
            start_ms=NOW_MS,
            end_ms=NOW_MS + 5,
            causes=("disk",),
            drivers=EvacuatedDrivers.RESTART,
        ),
        BlockedTaskManager(id="tm-2", action=BlockAction.MARK_BLOCKED, start_ms=NOW_MS, causes=("by hand",)),
    ),
    removals=(Removal(place=Place(PlaceKind.NODE, "node-3"), revision=8, by_hand=True, at_ms=NOW_MS),),
    floor=2,
)
ZOOKEEPER_NODES: dict[str, Any] = {
    "leader": LeaderRecord(address="127.0.0.1:8081", life="l" * 32),
    "latch": LatchRecord(address="127.0.0.1:8081"),
    "attempt": ATTEMPT,
    "checkpoints": POINTERS,
    "blocklist": BLOCKLIST,
    "key": KeyNode(job_id=JOB, key="key 1"),
    "result": ResultNode(
        result=msgspec.structs.replace(RESULT, savepoints=(SAVEPOINT,)),
        file=None,
        key="key 2",
        cleaning=Cleaning.DIRTY,
        graph=f"{ENDED_JOB}.7.graph",
    ),
    "result-in-a-file": ResultNode(
        result=None,
        file=ResultFile(location=f"{ENDED_JOB}.7.result", size=1, sha256=DIGEST),
        key="",
        cleaning=Cleaning.CLEAN,
        graph="",
    ),
}
PROCESS = ProcessIdentity(pid=4711, start_ticks=99, boot_id="b")
AGENT_LIFE = AgentLife(instance=InstanceId("i1"), process=PROCESS, port=7001)
_ALLOCATION = Allocation(
    id=AllocationId("al1"),
    slot_index=0,
    job_id=JOB,
    attempt=3,
    profile=ResourceProfile(cores=2, memory_mb=640),
    job_master="127.0.0.1:7077",
)
AGENT_RECORD = AgentRecord(
    instance=InstanceId("i1"),
    table=TableRecord(
        epoch=7,
        fences=(FenceRecord(job_id=JOB, highest=3, over=2),),
        slots=(
            SlotRecord(
                allocation=_ALLOCATION,
                state=SlotState.RUNNING,
                executor_id=ExecutorId("4"),
                former=(ExecutorId("2"),),
                exit_code=137,
                detail="killed",
                attempt_ends=True,
            ),
        ),
        drivers=(DriverRecord(job_id=JOB, attempt=3, memory_mb=640, state=DriverState.RUNNING, stop_grace=5.0),),
    ),
    outcomes=(OutcomeRecord(job_id=ENDED_JOB, attempt=1, outcome=OUTCOME),),
)
PROCESS_RECORD = ProcessRecord(name="driver-1", identity=PROCESS)
DRIVER_SPEC = DriverSpec(
    graph=GRAPH,
    attempt=3,
    host="127.0.0.1",
    task_manager="127.0.0.1:7001",
    agent="/node/agent.record",
    job_manager="127.0.0.1:8081",
    token_file="/state/token",
    checkpoint_root="/state/checkpoints",
    directory="/node/jobs/1/3/driver",
    logs="/node/logs",
    files=(BoundFile(role=ArtefactRole.SCRIPT, name="app.py", path="/node/app.py"),),
    options={"taskmanager.host": "127.0.0.1"},
    checkpoints=(CHECKPOINT,),
    procedure=REQUEST,
)
MANIFEST = Manifest(
    job_id=JOB,
    job_name="flüge",
    attempt=3,
    trigger_id=TRIGGER,
    procedure=Procedure.DRAIN,
    created_ms=NOW_MS,
    spark_version="4.3.0",
    emberkeep_version="0.1.0",
    queries=(
        QuerySavepoint(
            key="query-flights",
            name="flights",
            query_id="q1",
            sink="parquet",
            output_mode="append",
            target="/out",
            location="/checkpoints/q",
            batch_id=7,
            offsets=('{"logOffset":7}',),
            watermark_ms=NOW_MS,
            drained_from=5,
        ),
    ),
    files=(described("queries/query-flights/metadata", b"{}"), described(function_file(0), b"jtrue")),
    functions=(FunctionState(name="counter", path=function_file(0)),),
)
RESTORED = RestoredCheckpoint(job_id=JOB, manifest_sha256=DIGEST, key="query-flights", complete=True)
KEPT_STATES = KeptStates(job_id=JOB, savepoint="file:/savepoints/s", created_ms=NOW_MS, states={"counter": b"\x00j1"})
SINK_STATE = SinkState(
    owner=SinkWriter(job_id=JOB, attempt=3, writer="w"),
    growth=1.5,
    query="q1",
    checkpoint="/checkpoints/q",
    last_batch=5,
    shown=4,
    plans={"5": DIGEST},
    schemas={"s": "{}"},
    pieces=(Piece(first=5, last=5, bucket="day=1", path="p", size=9, schema="s", since_ms=NOW_MS, rows=3),),
    closed=(PartFile(first=4, last=4, source="c", target="day=1/c"),),
    moves=(PartFile(first=3, last=3, source="m", target="day=1/m"),),
)
COPIED = b"state of a store" * 4
COPY = CopyRecord(
    path=StatePath(root="/state/checkpoints", name="q/state/0/1/5.delta"),
    job_id=JOB,
    allocation_id=AllocationId("al1"),
    attempt=3,
    length=len(COPIED),
    generation="g1",
    modified_ms=NOW_MS,
    block_size=2**18,
    checksums=(5,),
)
RENAME = Rename(
    caller=Caller(job_id=JOB, attempt=3, allocation_id=AllocationId("al1")),
    root="/state/checkpoints",
    source="q/.5.tmp",
    target="q/5",
)
VOID_RENAME = msgspec.structs.replace(RENAME, target="q/6")
STARTED = StartedRecord(
    task_manager=TaskManagerId("tm-9"), node_id="node-1", mark="m", directory="/node/tm-9", identity=PROCESS
)
_DAEMON = DaemonRecord(name="jobmanager", identity=PROCESS, directory="/state/jobmanager")
CLUSTER = ClusterRecord(
    url="http://127.0.0.1:8081",
    token_file="/state/token",
    shape=ClusterShape(nodes=("node-1",), slots=2, memory="2g", definitions=("a=b",), job_managers=2, zookeepers=1),
    job_manager=_DAEMON,
    task_managers=(msgspec.structs.replace(_DAEMON, name="tm-1"),),
    standbys=(msgspec.structs.replace(_DAEMON, name="jobmanager-2"),),
    standby_urls=("http://127.0.0.1:8082",),
    zookeepers=(
        ZooKeeperRecord(
            daemon=msgspec.structs.replace(_DAEMON, name="zookeeper-1"),
            server=ZooKeeperServer(
                number=1,
                directory="/state/zookeeper-1",
                address="127.0.0.1",
                client_port=1,
                quorum_port=2,
                election_port=3,
            ),
        ),
    ),
)
UNNAMED_QUERIES = QueryRecord({0: QueryIdentity("parquet", "append", "/out"), 1: QueryIdentity("kafka", "update", "t")})
FUNCTION_STATES: dict[str, Any] = {"json": {"count": 3, "names": ["ä"]}, "bytes": b"\x00\xff"}
SINK_SNAPSHOT: dict[str, Any] = {"version": 1, "path": "/out", "query": "q1", "batch": 5}
GATEWAY_PORT = 7443
ARCHIVE_SIZE = 150_000_000
BOOT_ID = "b00t"
