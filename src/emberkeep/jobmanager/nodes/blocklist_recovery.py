"""Reads the blocklist for a new leader."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from emberkeep.base.configuration.options.blocklist import BLOCKLIST_ACCEPTS_LOSS
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.blocklist.lost import LostBlocklist, UnknownPlaces
from emberkeep.blocklist.model import Blocklist
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobs.ports import JobStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class FoundBlocklist:
    """The blocklist of a new leader. ``lost`` is set if the record cannot be read.

    In that case nothing new is placed until a JobMaster has sent its copy.
    """

    blocklist: Blocklist
    lost: LostBlocklist | None = None

    @property
    def places(self) -> BlockedPlaces:
        return BlockedPlaces(self.blocklist.entries) if self.lost is None else UnknownPlaces()


async def find_blocklist(store: JobStore, reads: StoreWrites, configuration: Configuration) -> FoundBlocklist:
    """Read the blocklist, retrying until the store answers. Raises NewerFormat."""
    try:
        return FoundBlocklist(await reads.read("the blocklist cannot be read", store.blocklist))
    except NewerFormat:
        raise
    except Fatal as error:
        if configuration[BLOCKLIST_ACCEPTS_LOSS]:
            log.error("the blocklist is lost, starting with an empty one", reason=str(error))
            await reads.read("cannot replace the blocklist", lambda: store.record_blocklist(Blocklist()))
            return FoundBlocklist(Blocklist())
        log.error("cannot read the blocklist; nothing new is placed until a job reports it", reason=str(error))
        return FoundBlocklist(Blocklist(), LostBlocklist(str(error), configuration[HEARTBEAT_TIMEOUT]))
