"""How much memory processes use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_PROPORTIONAL = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KIB, _MIB = 1024, 1024**2


def memory_mb(pids: Iterable[int]) -> int:
    """Return the MiB that processes use together. What several share counts once. Those that have ended use none."""
    return sum(_bytes(pid) for pid in pids) // _MIB


def _bytes(pid: int) -> int:
    place = _PROC / str(pid)
    try:
        found = _PROPORTIONAL.search((place / "smaps_rollup").read_bytes())
        if found is not None:
            return int(found[1]) * _KIB
        return int((place / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
