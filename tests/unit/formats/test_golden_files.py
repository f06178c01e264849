"""Every format that a release has written is read by the present code, and gives what was written then.

The files below ``golden/`` are kept for good: ``golden_write`` says how they are made, ``golden_samples`` what is in
them.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.adapters.job_store.graph_files import decode_handle
from emberkeep.adapters.job_store.result_files import ResultFile, ResultFiles
from emberkeep.adapters.processes.start import read_process_record
from emberkeep.adapters.state.copies_file import read_end
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.webhdfs.port import remembered_port
from emberkeep.adapters.zookeeper import layout as zookeeper_layout
from emberkeep.adapters.zookeeper.layout import decode_node
from emberkeep.api import RollingFileSink
from emberkeep.api.file_sink.commit_log import CommitLog
from emberkeep.api.function_state import decode_state
from emberkeep.base.files.durable import read_record
from emberkeep.base.started_task_managers import read_started
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.daemons.records.agent_files import SlotsFile, read_agent_life
from emberkeep.daemons.records.bound_files import read_artefacts
from emberkeep.daemons.records.driver_spec import read_outcome, read_spec
from emberkeep.lifecycle.manifest import decode_manifest
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.jvm import class_archive
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries import checkpoints
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.stopping.restore import Restore
from emberkeep.taskmanager.libraries import archives as library_cache_archives
from tests.unit.formats import golden_samples as samples
from tests.unit.formats.golden_next import FORMATS, NEXT

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-14")]

GOLDEN = Path(__file__).parent / "golden"
SOURCE = Path(__file__).parents[3] / "src" / "emberkeep"
RELEASE = GOLDEN / "0.1.0"

# Versions of formats that are no records (``base.files.durable``), as the golden files hold them.
OTHER_FORMATS = {
    ("adapters/job_store/schema.py", "SCHEMA_VERSION"): 3,
    ("api/rolling_file_sink.py", "_STATE_VERSION"): 1,
    ("client/clusters/cluster_file.py", "_VERSION"): 1,
    ("spark/queries/checkpoints.py", "_RECORD_VERSION"): 1,
}
SPOKEN_ONLY = {
    ("api/function_link.py", "VERSION"),
    ("notifications/model.py", "VERSION"),
    ("protocol/messages/root.py", "PROTOCOL_VERSION"),
}


class OneFile:
    """Stands for the file system of a checkpoint or of the sink: every path is this file."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()

    def read_bytes(self, path: str) -> bytes:
        del path
        return self._data

    def read(self, path: str) -> bytes:
        del path
        return self._data

    def numbered(self, directory: str) -> list[int]:
        del directory
        return [4]

    def names(self, directory: str) -> list[str]:
        del directory
        return ["000000000001.record"]


class SamePlaces:
    """Implements StateLocations."""

    def for_spark(self, session: Any, location: str) -> str:
        del session
        return location


class ReachedStates(FunctionStates):
    """Finds what is kept without Spark."""

    def __init__(self, path: Path) -> None:
        notices = Notices()
        places = CheckpointPlaces(lambda: None, (), notices)
        super().__init__("/c", samples.JOB, 2, SamePlaces(), places, lambda: None, notices)
        self._file: Any = OneFile(path)

    def _reach(self, session: Any) -> tuple[Any, str]:
        del session
        return self._file, "/c"


def _nothing() -> None:
    return None


async def test_the_embedded_job_store(tmp_path: Path) -> None:
    shutil.copytree(RELEASE / "job-store", tmp_path / "s")
    store = EmbeddedJobStore(tmp_path / "s" / "jobs.sqlite", tmp_path / "s" / "graphs")
    assert await store.open() > 1
    try:
        (stored,) = await store.recover()
        attempt = samples.ATTEMPT
        assert (stored.job_id, stored.graph, stored.problem) == (samples.JOB, samples.GRAPH, "")
        assert (stored.attempt, stored.canceled, stored.home) == (attempt.attempt, attempt.canceled, attempt.home)
        assert (stored.procedure, stored.stopped) == (attempt.procedure, attempt.stopped)
        assert stored.pointers == samples.POINTERS
        assert await store.results() == [samples.RESULT]
        assert await store.blocklist() == samples.BLOCKLIST
    finally:
        await store.close()


@pytest.mark.parametrize("name", sorted(samples.ZOOKEEPER_NODES))
def test_a_node_in_zookeeper(name: str) -> None:
    expected = samples.ZOOKEEPER_NODES[name]
    assert decode_node((RELEASE / "zookeeper" / name).read_bytes(), type(expected), where=name) == expected


def test_a_handle() -> None:
    assert decode_handle((RELEASE / "zookeeper" / "handle").read_bytes(), where="handle") == samples.HANDLE


def test_a_result_in_a_file() -> None:

    (path,) = (RELEASE / "results").iterdir()
    data = path.read_bytes()
    file = ResultFile(location=path.name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert ResultFiles(RELEASE / "results", 8).read(file) == samples.RESULT


READERS: dict[str, tuple[Callable[[Path], object], object]] = {
    "task-manager/slots.record": (lambda path: SlotsFile(path).load(), samples.AGENT_RECORD),
    "task-manager/agent.record": (read_agent_life, samples.AGENT_LIFE),
    "task-manager/process.record": (read_process_record, samples.PROCESS_RECORD),
    "task-manager/artefacts.record": (read_artefacts, samples.ARTEFACTS),
    "task-manager/spec.record": (read_spec, samples.DRIVER_SPEC),
    "task-manager/outcome.record": (read_outcome, samples.OUTCOME),
    "task-manager/complete.record": (
        lambda path: read_record(path, library_cache_archives.RECORD_KIND, library_cache_archives.RECORD_VERSION),
        samples.BOOT_ID.encode(),
    ),
    "started": (read_started, [samples.STARTED]),
    "client/cluster.json": (read_cluster, samples.CLUSTER),
    "spark/manifest": (lambda path: decode_manifest(path.read_bytes(), "m"), samples.MANIFEST),
    "spark/restored": (lambda path: Restore._record(OneFile(path), "/c"), samples.RESTORED),  # type: ignore[arg-type]
    "spark/function-states": (
        lambda path: dict(ReachedStates(path).begin_with(None, _nothing)),
        samples.KEPT_STATES.states,
    ),
    "spark/queries.json": (lambda path: checkpoints.decode(path.read_text(), "q"), samples.UNNAMED_QUERIES),
    "spark/000000000001.record": (
        lambda path: CommitLog(OneFile(path), "/out").read(),  # type: ignore[arg-type]
        samples.SINK_STATE,
    ),
    "spark/state-json": (lambda path: decode_state("f", path.read_bytes()), samples.FUNCTION_STATES["json"]),
    "spark/state-bytes": (lambda path: decode_state("f", path.read_bytes()), samples.FUNCTION_STATES["bytes"]),
    "spark/class-archive.record": (
        lambda path: int(read_record(path, class_archive._RECORD_KIND, class_archive._RECORD_VERSION)),
        samples.ARCHIVE_SIZE,
    ),
    "gateway/port.record": (remembered_port, samples.GATEWAY_PORT),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file(tmp_path: Path, name: str) -> None:
    source = RELEASE / name
    place = tmp_path / source.name
    if source.is_dir():
        shutil.copytree(source, place)
    else:
        shutil.copy(source, place)
    read, expected = READERS[name]
    assert read(place) == expected


def test_the_state_of_a_rolling_file_sink() -> None:
    state = decode_state("sink", (RELEASE / "spark" / "state-of-sink").read_bytes())
    assert state == samples.SINK_SNAPSHOT
    sink = RollingFileSink(samples.SINK_SNAPSHOT["path"])
    sink.initialize_state(state)
    assert sink._restored == ("q1", 5)


def test_a_local_copy_of_state() -> None:
    with (RELEASE / "gateway" / "copy").open("rb") as file:
        assert read_end(file.fileno(), "copy") == samples.COPY


def test_the_journal_of_renames(tmp_path: Path) -> None:
    shutil.copy(RELEASE / "gateway" / "renames", tmp_path / "renames")
    journal = FileRenameJournal(tmp_path / "renames", lambda: samples.NOW_MS)
    try:
        assert journal.knows(samples.RENAME)
        assert not journal.knows(samples.VOID_RENAME)
    finally:
        journal.close()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_that_is_newer_than_the_newest_release(tmp_path: Path, name: str) -> None:
    shutil.copy(NEXT / name, tmp_path / name)
    assert FORMATS[name].read(tmp_path / name) == FORMATS[name].value


# --- completeness -----------------------------------------------------------------------------------------------------


def _golden_records() -> set[tuple[str, int]]:
    found = set()
    for path in GOLDEN.rglob("*"):
        if path.is_file():
            for kind, version in re.findall(rb"emberkeep-record (\S+) (\d+) ", path.read_bytes()):
                found.add((kind.decode(), int(version)))
    return found


def _modules(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules whose text has one of these words; to parse the others would take seconds."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield path, ast.parse(text)


def _constants() -> Iterator[tuple[str, dict[str, object]]]:
    """Of each module with kinds or versions: its path and the literals that it gives names to."""
    for path, tree in _modules("KIND", "VERSION"):
        named: dict[str, object] = {}
        for node in tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name | ast.Tuple):
                continue
            target, value = node.targets[0], node.value
            names: list[ast.expr] = [target]
            values: list[ast.expr] = [value]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                names, values = target.elts, value.elts
            for name, literal in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and isinstance(literal, ast.Constant):
                    named[name.id] = literal.value
        yield path.relative_to(SOURCE).as_posix(), named


def test_every_kind_of_record_has_a_golden_file_of_its_version() -> None:
    """A new kind, or a new version of one, needs a file: see ``golden_next``."""
    present = {(kind, zookeeper_layout._VERSION) for kind in zookeeper_layout.KINDS.values()}
    for module, named in _constants():
        for name, kind in named.items():
            if name.endswith("KIND") and name.removesuffix("KIND") + "VERSION" in named:
                present.add((str(kind), int(str(named[name.removesuffix("KIND") + "VERSION"]))))
            elif name.endswith("KIND"):
                assert module == "protocol/encoding/hadoop_token.py", f"{module}: {name} has no version beside it"
    assert present - _golden_records() == set()


def test_every_other_version_has_a_golden_file() -> None:
    found = {
        (module, name): value
        for module, named in _constants()
        for name, value in named.items()
        if name.endswith("VERSION") and isinstance(value, int) and name.removesuffix("VERSION") + "KIND" not in named
    }
    zookeeper = ("adapters/zookeeper/layout.py", "_VERSION")
    assert {place: found[place] for place in found if place not in SPOKEN_ONLY | {zookeeper}} == OTHER_FORMATS


def test_every_record_is_written_under_a_named_kind() -> None:
    """So that the tests above know them all."""
    for path, tree in _modules("encode_record", "write_record"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"encode_record": 0, "write_record": 1}.get(node.func.id)
                assert place is None or not isinstance(node.args[place], ast.Constant), f"{path}:{node.lineno}"


def test_no_golden_file_is_unread() -> None:
    read = {RELEASE / name for name in READERS} | {RELEASE / "zookeeper" / name for name in samples.ZOOKEEPER_NODES}
    others = ("zookeeper/handle", "spark/state-of-sink", "gateway/copy", "gateway/renames", "job-store", "results")
    read |= {RELEASE / name for name in others} | {NEXT / name for name in FORMATS}
    files = {path for path in GOLDEN.rglob("*") if path.is_file()}
    assert {path for path in files if not read & {path, *path.parents}} == set()


def _fields_with_samples(value: object, found: dict[type[msgspec.Struct], set[str]]) -> None:
    """Add the fields whose values differ from their defaults, of this record and of those in it."""
    if isinstance(value, msgspec.Struct):
        fields = found.setdefault(type(value), set())
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            if inner != default:
                fields.add(field.name)
            _fields_with_samples(inner, found)
    elif isinstance(value, Mapping):
        _fields_with_samples(list(value.values()), found)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _fields_with_samples(each, found)


def test_every_field_of_a_record_has_a_golden_file_in_which_it_is_set() -> None:
    """A new field of an old record needs a file, too: see ``golden_next``."""
    found: dict[type[msgspec.Struct], set[str]] = {}
    _fields_with_samples([value for name, value in vars(samples).items() if name.isupper()], found)
    _fields_with_samples([each.value for each in FORMATS.values()], found)
    missing = {
        kind.__name__: {field.name for field in msgspec.structs.fields(kind)} - fields for kind, fields in found.items()
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_no_field_of_a_record_was_dropped_or_renamed() -> None:
    """Otherwise it would be ignored silently, and what it said be lost."""
    for name, value in samples.ZOOKEEPER_NODES.items():
        data = msgspec.json.decode((RELEASE / "zookeeper" / name).read_bytes().partition(b"\n")[2])
        assert set(data) <= {field.encode_name for field in msgspec.structs.fields(value)}, name
