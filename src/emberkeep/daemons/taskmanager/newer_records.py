"""Looks for records of a newer release in a task manager's working directory, before anything there is used.

This release cannot know what a newer release records about slots and processes, so it could end processes that are in
use. So the task manager refuses to start, and the drivers and executors there continue to run.

With ``security.run-as``, the directory of a process belongs to the user of its job, who can write any record there.
Such a record counts only if a newer release has started processes of this attempt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from emberkeep.adapters.processes.start import RECORD_KIND as PROCESS_KIND
from emberkeep.adapters.processes.start import RECORD_SUFFIX as PROCESS_SUFFIX
from emberkeep.adapters.processes.start import RECORD_VERSION as PROCESS_VERSION
from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.errors import Damaged, NewerFormat
from emberkeep.base.files.durable import record_version
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.files.hostile import read_bytes
from emberkeep.daemons.records.agent_files import AGENT_KIND, AGENT_VERSION
from emberkeep.daemons.records.bound_files import ARTEFACTS_FILE, ARTEFACTS_KIND, ARTEFACTS_VERSION
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, OUTCOME_KIND, OUTCOME_VERSION
from emberkeep.daemons.records.late_variables import VARIABLES_FILE, VARIABLES_KIND, VARIABLES_VERSION
from emberkeep.daemons.records.record_versions import VERSIONS_KIND, VERSIONS_VERSION, read_versions
from emberkeep.taskmanager.agent_record import RECORD_KIND as SLOTS_KIND
from emberkeep.taskmanager.agent_record import RECORD_VERSION as SLOTS_VERSION

_KNOWN: Mapping[str, int] = {
    SLOTS_KIND: SLOTS_VERSION,
    AGENT_KIND: AGENT_VERSION,
    PROCESS_KIND: PROCESS_VERSION,
    ARTEFACTS_KIND: ARTEFACTS_VERSION,
    OUTCOME_KIND: OUTCOME_VERSION,
    VERSIONS_KIND: VERSIONS_VERSION,
    VARIABLES_KIND: VARIABLES_VERSION,
}
_HEADER_BYTES = 256
_PLACES = (
    "*.record",
    f"processes/*{PROCESS_SUFFIX}",
    "jobs/*/*/*.record",
    # By name: a job may have filled these directories.
    f"jobs/*/*/driver/{OUTCOME_FILE}",
    f"jobs/*/*/driver/{ARTEFACTS_FILE}",
    f"jobs/*/*/executors/*/{ARTEFACTS_FILE}",
    f"jobs/*/*/executors/*/{VARIABLES_FILE}",
)


def refuse_newer_records(directory: WorkingDirectory) -> None:
    """Raise NewerFormat if a record there is newer than this release. Blocks.

    Unknown kinds of records and unreadable records are ignored.
    """
    for path, kind, version in _records(directory.root):
        if version > _KNOWN.get(kind, version) and can_be_newer(directory, path, kind):
            raise NewerFormat(
                f"this task manager cannot start: {path} ({kind} version {version}) was written by a newer release",
                hint=f"this release reads up to version {_KNOWN[kind]}: start the newer release again; drivers and "
                "executors continue in the meantime",
            )


def can_be_newer(directory: WorkingDirectory, path: Path, kind: str) -> bool:
    """False if the user of a job has written the record at ``path``, and only claims that it is newer. Blocks.

    Raises Unavailable, NewerFormat (the record about the attempt itself), Fatal.
    """
    try:
        if path.parent.stat().st_uid == os.geteuid():
            return True
    except OSError as error:
        raise cannot_read(path.parent, error) from error
    job, attempt = path.relative_to(directory.jobs).parts[:2]
    versions = read_versions(directory.jobs / job / attempt)
    written = {OUTCOME_KIND: versions.outcome, ARTEFACTS_KIND: versions.artefacts}
    return written.get(kind, 0) > _KNOWN[kind]


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
