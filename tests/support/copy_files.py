"""The files of local copies on a disk, for tests that damage them."""

from __future__ import annotations

from pathlib import Path

from emberkeep.local_state.model import CopyRecord


def copy_file(root: Path, record: CopyRecord) -> Path:
    """Return the file with a copy's bytes, followed by its record. ``root`` is the directory of all local copies."""
    wanted = f'"name":"{record.path.name}"'.encode()
    owner = root / "copies" / record.job_id / record.allocation_id
    (file,) = (file for file in owner.iterdir() if wanted in file.read_bytes()[record.length :])
    return file


def flip(file: Path, offset: int) -> None:
    """Change one bit of the byte at ``offset``."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 4]))
