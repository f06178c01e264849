"""The beginning of an upgrade: the files of both versions are kept for it, then its record becomes durable."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater
from emberkeep.jobmanager.jobs.admission import artefact_contents, artefact_keys
from emberkeep.jobmanager.store_writes import GiveUp, StoreWrites
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.jobs.upgrades.ports import UPGRADE_BYTES, record_size


class UpgradeBeginning:
    """Claims files and writes the first record.

    The files of the old code get a second owner before the old job is stopped: what a job has is deleted when it ends.
    """

    def __init__(self, writes: StoreWrites, blobs: BlobServerGateway) -> None:
        self._writes = writes
        self._blobs = blobs

    async def record(self, upgrade: Upgrade, refuse: GiveUp) -> bool:
        """Return True if the upgrade is recorded. ``refuse`` gets the reason if it is not, or if that is not certain.

        Raises Conflict if another JobManager is the leader.
        """
        new, back = upgrade.new, upgrade.back
        assert new is not None  # noqa: S101 - it begins
        assert back is not None  # noqa: S101
        size = record_size(upgrade)
        if size > UPGRADE_BYTES:
            refuse(
                InvalidInput(
                    f"the graphs of both versions have {size} bytes: {UPGRADE_BYTES} are allowed",
                    hint="put long arguments and settings into files of the job",
                )
            )
            return False
        try:
            await self._blobs.claim(new.job_id, artefact_contents(new))
        except EmberkeepError as error:
            refuse(error)
            return False
        try:
            await self._keep(upgrade, back)
        except EmberkeepError as error:
            self._blobs.withdraw(new.job_id)
            refuse(error)
            return False
        if await self._writes.begin_upgrade(upgrade, refuse):
            return True
        self._blobs.withdraw(new.job_id)
        self._blobs.withdraw(back.job_id)
        return False

    async def _keep(self, upgrade: Upgrade, back: JobGraph) -> None:
        """Give the files of the old job to the job that may run its code again. Raises EmberkeepError."""
        for key in artefact_keys(back):
            await self._blobs.path(upgrade.job_id, key)  # bring it here, so that it can be shared
        contents = artefact_contents(back)
        missing = await self._blobs.open_group(back.job_id, contents) if contents else ()
        if missing:
            raise RetryLater(
                f"{len(missing)} files of job {upgrade.job_id} cannot be kept for the way back now",
                hint="try again; `emberkeep blob verify` checks the files of jobs",
            )
        await self._blobs.claim(back.job_id, contents)
