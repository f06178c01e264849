"""Processes of release 0.1.0 in a simulated cluster: this release's code, which has only what 0.1.0 knows.

What such a process sends, gets and writes has no field that came later. It refuses requests that came later, and
requests with a field that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.model import JobResult
from emberkeep.protocol.encoding.first_release import ADDED
from emberkeep.slots.table.record import DriverRecord, TableRecord
from emberkeep.taskmanager.agent_record import AgentRecord
from tests.support.agent_store import MemoryAgentStore

T = TypeVar("T")

_FIELDS = Path(__file__).parents[3] / "unit" / "protocol" / "encoding" / "message_fields_0_1_0.json"
# What the classes of all messages of 0.1.0 had, by name.
KNOWN: dict[str, list[str]] = json.loads(_FIELDS.read_text())
LATER_REQUESTS = frozenset({"KeepLog", "SearchLog", "ReportNow", "ReadSparkUi", "ReadProgress"})

_LATER_IN_RECORDS: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    **ADDED,
    AgentRecord: ("unconfirmed",),
    TableRecord: ("lineage",),
    DriverRecord: ("addresses",),
    SavepointPointer: ("periodic", "retired_ms", "size", "duration_ms", "procedure"),
    JobResult: ("owner", "namespace", "savepoint", "work", "attempt"),
}


def as_written(value: T) -> T:
    """Return a record, or a part of one, as 0.1.0 writes it."""
    written: T = _written(value)
    return written


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(kind)


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_written(each) for each in value)
    if not isinstance(value, msgspec.Struct):
        return value
    later, changes = _LATER_IN_RECORDS.get(type(value), ()), {}
    for each in _fields(type(value)):
        if each.name not in later:
            changes[each.name] = _written(getattr(value, each.name))
        elif each.default_factory is not msgspec.NODEFAULT:
            changes[each.name] = each.default_factory()
        else:
            changes[each.name] = each.default
    return msgspec.structs.replace(value, **changes)


def check_known(operation: str, data: bytes) -> None:
    """Raise InvalidInput for a request that 0.1.0 refuses before it looks at its content."""
    if operation in LATER_REQUESTS:
        raise InvalidInput(f"{operation!r} is not a request of this protocol")
    known = KNOWN.get(operation)
    if known is None:
        return  # a call that the REST API would make
    unknown = sorted(msgspec.msgpack.decode(data).keys() - set(known))
    if unknown:
        raise UnknownField(f"the request is not valid: Object contains unknown field {unknown[0]!r}")


class UnknownField(InvalidInput):
    """A request has a field that 0.1.0 does not know."""


class FirstReleaseRecord:
    """Implements AgentStore for a task manager of 0.1.0."""

    def __init__(self, record: MemoryAgentStore) -> None:
        self._record = record

    async def read(self) -> AgentRecord:
        return await self._record.read()

    async def write(self, record: AgentRecord) -> None:
        await self._record.write(as_written(record))
