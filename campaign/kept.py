"""Records of histories, kept as files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from emberkeep.base.files.durable import write_file


class Versioned(Protocol):
    """A record that says of which version it is."""

    @property
    def version(self) -> int: ...


_Record = TypeVar("_Record", bound=Versioned)


def write_record(path: Path, record: Versioned) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def read_kept(path: Path, kind: type[_Record], version: int) -> _Record:
    """Read a kept history. Raises ValueError that names the file if it is damaged or of another version."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is no history of version {version}: {error}") from error
    if record.version != version:
        raise ValueError(f"{path} has version {record.version}, this checkout reads version {version}")
    return record
