"""The record of a process's artefacts, in the directory of the process, for the next task manager process."""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.base.files.hostile import read_bytes
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.base.files.private import make_private
from emberkeep.jobs.model import Artefact

ARTEFACTS_FILE = "artefacts.record"
ARTEFACTS_KIND, ARTEFACTS_VERSION = "process-artefacts", 1


def write_artefacts(path: Path, artefacts: tuple[Artefact, ...], files: FileOps = SYSTEM_FILES) -> None:
    """Write the record, and create its directory if needed. Blocks. Raises Fatal, OSError."""
    make_private(path.parent)
    write_record(path, ARTEFACTS_KIND, ARTEFACTS_VERSION, msgspec.json.encode(artefacts), files=files)


def read_artefacts(path: Path) -> tuple[Artefact, ...]:
    """Read the recorded artefacts from the disk; this blocks. Raises Absent, Unavailable, Fatal."""
    try:
        return from_json(read_record(path, ARTEFACTS_KIND, ARTEFACTS_VERSION, read_bytes), tuple[Artefact, ...])
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error
