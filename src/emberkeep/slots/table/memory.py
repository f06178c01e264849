"""Which driver or executor has to end, because it uses more memory than it was given."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

_Key = TypeVar("_Key")

_LOOKS = 2  # in a row at which a process exceeds its memory, before it has to end: a peak may be short


class MemoryLimit(enum.Enum):
    """When a process that exceeds its memory has to end."""

    NONE = "none"  # never
    WHEN_SHORT = "when-short"  # if the machine has little memory left
    ALWAYS = "always"


@dataclass(frozen=True)
class MemoryUse:
    """What a process uses, with all that it has started, and what it was given."""

    used_mb: int
    given_mb: int

    @property
    def excess_mb(self) -> int:
        return self.used_mb - self.given_mb


def reason_of_kernel(limit_mb: int, *, is_driver: bool) -> str:
    """Return why a process has ended, or has to, of which the kernel has ended a part."""
    role = "driver" if is_driver else "executor"
    return (
        f"the kernel ended a process in its control group, because it needed more than the {limit_mb} MiB of memory "
        f"that it was given, with all that it has started (more: spark.{role}.memoryOverhead)"
    )


class MemoryWatch(Generic[_Key]):
    """Decides from successive looks at the processes of a machine."""

    def __init__(self, limit: MemoryLimit, reserve_mb: int) -> None:
        """``reserve_mb``: the machine has little memory left if less than this is available."""
        self._limit = limit
        self._reserve_mb = reserve_mb
        self._exceeding: dict[_Key, int] = {}  # looks in a row

    def wants(self, available_mb: int) -> bool:
        """Return whether it matters now what processes use."""
        return self._limit is MemoryLimit.ALWAYS or (
            self._limit is MemoryLimit.WHEN_SHORT and available_mb < self._reserve_mb
        )

    def look(self, uses: Mapping[_Key, MemoryUse], available_mb: int) -> dict[_Key, str]:
        """Return the processes that have to end now, with the reason."""
        if not self.wants(available_mb):
            self._exceeding.clear()
            return {}
        exceeding = {key: use for key, use in uses.items() if use.excess_mb > 0}
        self._exceeding = {key: self._exceeding.get(key, 0) + 1 for key in exceeding}
        due = {key: use for key, use in exceeding.items() if self._exceeding[key] >= _LOOKS}
        if self._limit is MemoryLimit.ALWAYS:
            return {key: _reason(use) for key, use in due.items()}
        if not due:
            return {}
        worst = max(due, key=lambda key: due[key].excess_mb)
        del self._exceeding[worst]
        why = f"{_reason(due[worst])}, more than all others here, while the machine had {available_mb} MiB left"
        return {worst: why}


def _reason(use: MemoryUse) -> str:
    return f"it used {use.used_mb} MiB of memory with all that it has started, and was given {use.given_mb} MiB"
