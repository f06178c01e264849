"""Operations that clients have recorded: when each was invoked, when it returned, and with which result.

Times are seconds of one clock that all clients share. A read whose outcome is unknown says nothing, so it is not part
of a history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on the object with the key ``key``.

    ``returned``: None if its outcome is unknown: it may have taken effect at any time after ``invoked``, or never.
    ``arguments`` and ``result`` are what the object's model reads.
    """

    client: str
    key: str
    kind: str
    arguments: dict[str, Any] = {}
    invoked: float
    returned: float | None = None
    result: Any = None

    def __str__(self) -> str:
        until = "…" if self.returned is None else f"{self.returned:.3f}"
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.client} {self.invoked:.3f}–{until} {self.kind}({given}) on {self.key} → {self.result}"


def by_key(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return the operations of each object.

    A history is linearizable if and only if the history of each object is.
    """
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.key, []).append(operation)
    return found
