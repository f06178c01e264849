"""A shared storage for the REST API's tests: what it says is set, what it is asked is kept."""

from __future__ import annotations

import msgspec

from emberkeep.protocol.rest_storage import StorageInfo
from emberkeep.rest.ports import StorageCondition

OWNED = StorageInfo(location="/storage", cluster="north", owned=True, problem="", hint="", data=[])


class FakeStorage:
    """Implements rest.ports.Storage."""

    def __init__(self) -> None:
        self.info = OWNED
        self.asked: list[str] = []

    def condition(self) -> StorageCondition:
        return StorageCondition(problem=self.info.problem, unneeded=len(self.info.data))

    async def status(self) -> StorageInfo:
        return self.info

    async def adopt(self) -> StorageInfo:
        self.asked.append("adopt")
        self.info = msgspec.structs.replace(self.info, owned=True, problem="", hint="")
        return self.info

    async def purge(self, *, force: bool = False) -> StorageInfo:
        self.asked.append("purge by force" if force else "purge")
        self.info = msgspec.structs.replace(self.info, owned=True, problem="", hint="", data=[])
        return self.info
