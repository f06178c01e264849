"""Which limits of control groups count."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.daemons.probes.memory import read_memory

MIB = 1024**2


@pytest.mark.parametrize(
    ("own", "limits", "free"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(64 * MIB)}, 64 * MIB),
        ("0::/a/b\n", {"a/b/memory.max": str(32 * MIB), "a/memory.max": str(64 * MIB)}, 32 * MIB),
        ("5:cpu:/x\n3:memory:/x\n", {"memory/x/memory.limit_in_bytes": str(16 * MIB)}, 16 * MIB),
        ("0::/\n", {"memory.max": str(8 * MIB)}, 8 * MIB),
    ],
)
def test_the_smallest_limit_counts(tmp_path: Path, own: str, limits: dict[str, str], free: int) -> None:
    (tmp_path / "own").write_text(own)
    for name, limit in limits.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")

    assert read_memory(tmp_path / "own", tmp_path / "groups").free == free


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    found = read_memory(tmp_path / "none", tmp_path / "groups").free

    assert found is not None
    assert found > 0
