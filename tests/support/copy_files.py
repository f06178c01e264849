"""The files of local copies on a disk, for who wants to harm them."""

from __future__ import annotations

from pathlib import Path

from emberkeep.local_state.model import CopyRecord


def copy_file(root: Path, record: CopyRecord) -> Path:
    """Where a copy's bytes lie, its record behind them. ``root``: of all local copies."""
    wanted = f'"name":"{record.path.name}"'.encode()
    owner = root / "copies" / record.job_id / record.allocation_id
    (file,) = (file for file in owner.iterdir() if wanted in file.read_bytes()[record.length :])
    return file


def flip(file: Path, offset: int) -> None:
    """Change one bit."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 4]))
