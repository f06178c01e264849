"""Formats that came after the newest release, with their golden files in ``golden/next``.

Who adds a kind of record, or a version of one, adds an entry to FORMATS and runs this module with ``python -m``,
which writes the files that are not there yet. The next release takes them over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emberkeep.adapters.blob_place import Binding, read_binding, write_binding
from emberkeep.adapters.storage_marks import read_marks, write_marks
from emberkeep.adapters.zookeeper_layout import RegisteredAddress, decode_node, encode_node
from emberkeep.base.ids import JobId
from emberkeep.base.ownership import Owner, PlaceKind, decode_owner, encode_owner
from emberkeep.base.process_identity import ProcessIdentity
from emberkeep.daemons.leader_file import read_leader_file, write_leader_file
from emberkeep.jobs.leftovers import Kind, Mark
from emberkeep.leadership.model import LeaderAddress, LeaderNews

NEXT = Path(__file__).parent / "golden" / "next"

OWNER = Owner(
    cluster_id="c", kind=PlaceKind.WORKING_DIRECTORY, created_at_ms=1_700_000_000_000, holder="tm-1", place_id="p"
)
LEADER = LeaderNews(leader=LeaderAddress(7, "127.0.0.1:8081"), job_managers=("127.0.0.1:8081", "127.0.0.1:8082"))
REGISTERED = RegisteredAddress(
    address="127.0.0.1:8081",
    name="jm-1",
    host="node-1",
    process=ProcessIdentity(pid=4711, start_ticks=99, boot_id="b"),
    processes="pid:[1]",
)
MARKS = (Mark(job_id=JobId("1" * 32), kind=Kind.CHECKPOINTS, since_ms=1_700_000_000_000, ended=True),)

BINDING = Binding(location="s3://bucket/emberkeep", place_id="p")


@dataclass(frozen=True)
class Format:
    """``read`` gives ``value`` for what ``write`` has written."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    value: object


FORMATS = {
    "ownership": Format(
        lambda path: path.write_bytes(encode_owner(OWNER)),
        lambda path: decode_owner(path.read_bytes(), where="ownership"),
        OWNER,
    ),
    "known-leader": Format(lambda path: write_leader_file(path, LEADER), read_leader_file, LEADER),
    "storage-deletions": Format(lambda path: write_marks(path, MARKS), read_marks, MARKS),
    "blob-place": Format(lambda path: write_binding(path, BINDING), read_binding, BINDING),
    "job-manager-address": Format(
        lambda path: path.write_bytes(encode_node(REGISTERED)),
        lambda path: decode_node(path.read_bytes(), RegisteredAddress, where="address"),
        REGISTERED,
    ),
}


if __name__ == "__main__":
    for name, each in FORMATS.items():
        if not (NEXT / name).exists():
            each.write(NEXT / name)
