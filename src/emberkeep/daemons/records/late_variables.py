"""The record of variables that a process received after its start, for the next task manager process.

The kernel shows only the environment with which a process was started. A former standby process received the
environment of its job later.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.base.files.hostile import read_bytes

VARIABLES_FILE = "late-variables.record"
VARIABLES_KIND, VARIABLES_VERSION = "late-variables", 1


def write_late_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write the record. Blocks. Raises Fatal."""
    write_record(path, VARIABLES_KIND, VARIABLES_VERSION, msgspec.json.encode(variables))


def read_late_variables(path: Path) -> dict[str, str] | None:
    """Return the recorded variables; None if the process got none late. Blocks. Raises Unavailable, Fatal."""
    try:
        return from_json(read_record(path, VARIABLES_KIND, VARIABLES_VERSION, read_bytes), dict[str, str])
    except Absent:
        return None
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error
