"""Looks for records of a newer release in a task manager's working directory, before anything there is used.

This release cannot know what a newer release records about slots and processes, so it could end processes that are in
use. So the task manager refuses to start, and the drivers and executors there continue to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from emberkeep.adapters.processes.start import RECORD_KIND as PROCESS_KIND
from emberkeep.adapters.processes.start import RECORD_VERSION as PROCESS_VERSION
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Damaged, NewerFormat
from emberkeep.base.files.durable import record_version
from emberkeep.base.files.hostile import read_bytes
from emberkeep.daemons.records.agent_files import AGENT_KIND, AGENT_VERSION
from emberkeep.daemons.records.bound_files import ARTEFACTS_KIND, ARTEFACTS_VERSION
from emberkeep.daemons.records.driver_spec import OUTCOME_KIND, OUTCOME_VERSION
from emberkeep.taskmanager.agent_record import RECORD_KIND as SLOTS_KIND
from emberkeep.taskmanager.agent_record import RECORD_VERSION as SLOTS_VERSION

_KNOWN: Mapping[str, int] = {
    SLOTS_KIND: SLOTS_VERSION,
    AGENT_KIND: AGENT_VERSION,
    PROCESS_KIND: PROCESS_VERSION,
    ARTEFACTS_KIND: ARTEFACTS_VERSION,
    OUTCOME_KIND: OUTCOME_VERSION,
}
_HEADER_BYTES = 256
_PLACES = ("*.record", "processes/*.record", "jobs/*/*/driver/*.record", "jobs/*/*/executors/*/*.record")


def refuse_newer_records(directory: WorkingDirectory) -> None:
    """Raise NewerFormat if a record there is newer than this release. Blocks.

    Unknown kinds of records and unreadable records are ignored.
    """
    for path, kind, version in _records(directory.root):
        if version > _KNOWN.get(kind, version):
            raise NewerFormat(
                f"this task manager cannot start: {path} ({kind} version {version}) was written by a newer release",
                hint=f"this release reads up to version {_KNOWN[kind]}: start the newer release again; drivers and "
                "executors continue in the meantime",
            )


def _records(root: Path) -> Iterator[tuple[Path, str, int]]:
    for pattern in _PLACES:
        for path in sorted(root.glob(pattern)):
            try:
                header = read_bytes(path, _HEADER_BYTES)
            except (OSError, Damaged):
                continue
            found = record_version(header)
            if found is not None:
                yield path, *found
