"""The record of which versions the records of an attempt's processes can have, for processes of other users.

With ``security.run-as``, a process's directory belongs to the user of its job, who can put a record there that claims
to be of a newer release. This record is beside these directories, where only the task manager writes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.daemons.records.bound_files import ARTEFACTS_VERSION
from emberkeep.daemons.records.driver_spec import OUTCOME_VERSION

VERSIONS_FILE = "versions.record"  # in the attempt's directory
VERSIONS_KIND, VERSIONS_VERSION = "record-versions", 1


class RecordVersions(Compatible, frozen=True, kw_only=True):
    """The newest versions written by any release that has started processes of an attempt."""

    outcome: int
    artefacts: int


OF_THIS_RELEASE = RecordVersions(outcome=OUTCOME_VERSION, artefacts=ARTEFACTS_VERSION)


def write_versions(attempt: Path, versions: RecordVersions = OF_THIS_RELEASE) -> None:
    """Record that a release which writes ``versions`` starts a process of the attempt. Blocks.

    Raises Unavailable, Fatal.
    """
    known = read_versions(attempt)
    newest = RecordVersions(
        outcome=max(known.outcome, versions.outcome), artefacts=max(known.artefacts, versions.artefacts)
    )
    path = attempt / VERSIONS_FILE
    if newest != known or not path.exists():
        write_record(path, VERSIONS_KIND, VERSIONS_VERSION, msgspec.json.encode(newest))


def read_versions(attempt: Path) -> RecordVersions:
    """Return the recorded versions; without a record, those of this release. Blocks. Raises Unavailable, Fatal."""
    path = attempt / VERSIONS_FILE
    try:
        return from_json(read_record(path, VERSIONS_KIND, VERSIONS_VERSION), RecordVersions)
    except Absent:
        return OF_THIS_RELEASE
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error
