"""Every persisted format: a sound sample and the code that reads it, for tests that damage the sample."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import google_crc32c
from hypothesis import strategies as st

from emberkeep.adapters.job_store.graph_files import decode_handle
from emberkeep.adapters.state.copies_file import read_end
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner
from emberkeep.adapters.zookeeper.layout import LeaderRecord, decode_node
from emberkeep.base.errors import EmberkeepError
from emberkeep.spark.queries.checkpoints import decode
from tests.unit.formats import golden_samples as samples
from tests.unit.formats.golden_next import FORMATS, NEXT
from tests.unit.formats.test_golden_files import READERS, RELEASE
from tests.unit.security.hostile_input.bytes_of import damaged, json_bytes

Read = Callable[[Path], object]

_SIGNER = RecordSigner(b"the cluster's key")
_MAGIC = b"emberkeep-record "
_VERSIONS = st.sampled_from([b"2", b"999", b"0", b"-1", b"9" * 5000, b"1.0", b"", b"\xff", "٣".encode()])


def _journal(path: Path) -> object:
    journal = FileRenameJournal(path, lambda: samples.NOW_MS)
    try:
        return journal.knows(samples.RENAME)
    finally:
        journal.close()


def _copy(path: Path) -> object:
    with path.open("rb") as file:
        return read_end(file.fileno(), "copy")


def _signed(path: Path) -> object:
    return decode_node(_SIGNER.checked("/epoch", path.read_bytes()), LeaderRecord, where="epoch")


def _node(kind: type) -> Read:
    return lambda path: decode_node(path.read_bytes(), kind, where=path.name)


_BY_THEIR_CALLERS = {"spark/class-archive.record"}  # whose payload the caller checks

STORED: dict[str, tuple[Path, Read]] = {
    **{
        name: (RELEASE / name, read)
        for name, (read, _) in READERS.items()
        if (RELEASE / name).is_file() and name not in _BY_THEIR_CALLERS
    },
    "spark/queries.json": (
        RELEASE / "spark" / "queries.json",
        lambda path: decode(path.read_text("utf-8", "replace"), "q"),
    ),
    **{f"next/{name}": (NEXT / name, each.read) for name, each in FORMATS.items() if not name.startswith("jobs.")},
    **{f"node/{name}": (RELEASE / "zookeeper" / name, _node(type(x))) for name, x in samples.ZOOKEEPER_NODES.items()},
    "node/signed": (NEXT / "signed-leader", _signed),
    "node/handle": (RELEASE / "zookeeper" / "handle", lambda path: decode_handle(path.read_bytes(), where="handle")),
    "gateway/renames": (RELEASE / "gateway" / "renames", _journal),
    "gateway/copy": (RELEASE / "gateway" / "copy", _copy),
    "started": (next((RELEASE / "started").iterdir()), lambda path: READERS["started"][0](path.parent)),
    "jobs.sqlite": (NEXT / "jobs.sqlite", FORMATS["jobs.sqlite"].read),
}


def contents(name: str) -> st.SearchStrategy[bytes]:
    """Return hostile contents of a file: damaged ones, and ones with a right checksum around hostile payloads."""
    sound = STORED[name][0].read_bytes()
    # Only the end of a copy's file and of a journal is a record or JSON; a record may follow a signature.
    start = sound.rfind(_MAGIC)
    if start < 0:
        return damaged([sound]) | json_bytes([sound])
    header, _, payload = sound[start:].partition(b"\n")
    kind, version = header.split(b" ")[1:3]

    def record(payload: bytes, version: bytes) -> bytes:
        checked = google_crc32c.value(payload)
        made = _MAGIC + b"%s %s %d %08x\n" % (kind, version, len(payload), checked) + payload
        return sound[:start] + made + (b"%08x\n" % len(made) if name == "gateway/copy" else b"")

    if name == "gateway/copy":
        payload = payload[:-9]
    made = st.builds(record, json_bytes([payload]), st.just(version)) | st.builds(record, st.just(payload), _VERSIONS)
    return damaged([sound]) | made


def read_hostile(name: str, data: bytes, directory: Path) -> None:
    """Read a file with these contents: its reader accepts or refuses it, and changes nothing else."""
    source, read = STORED[name]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    path = directory / source.name
    path.write_bytes(data)
    with contextlib.suppress(EmberkeepError):
        read(path)
    left = {each.name for each in directory.iterdir()}
    if name != "jobs.sqlite":  # SQLite has files of its own beside the database
        assert left == {source.name}
