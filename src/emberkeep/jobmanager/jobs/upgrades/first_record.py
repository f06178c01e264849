"""The record with which an upgrade begins. Pure."""

from __future__ import annotations

import msgspec

from emberkeep.base.configuration.values import Configuration
from emberkeep.jobmanager.jobs.procedure_defaults import with_defaults
from emberkeep.jobmanager.views.upgrades import UpgradeWish
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.upgrades.model import Upgrade, UpgradePhase
from emberkeep.lifecycle.model import Procedure, ProcedureRequest


def first_record(
    old: JobGraph, wish: UpgradeWish, now: int, configuration: Configuration, savepoint_root: str
) -> Upgrade:
    """Return the record of an upgrade of the job ``old`` that begins at ``now``, in Unix milliseconds.

    ``configuration``: the cluster's. ``savepoint_root``: the savepoint's directory if none is configured.
    """
    stop = ProcedureRequest(
        trigger_id=wish.upgrade_id,
        procedure=Procedure.SUSPEND,
        target_directory=wish.target_directory,
        requested_ms=now,
        deadline_ms=now + wish.limit_ms if wish.limit_ms > 0 else 0,
    )
    stop = with_defaults(stop, configuration, old, savepoint_root)
    key = f"upgrade-{wish.upgrade_id}"
    new = msgspec.structs.replace(wish.new, idempotency_key=f"{key}-new")
    back = msgspec.structs.replace(
        old, job_id=wish.back.job_id, secrets=wish.back.secrets, idempotency_key=f"{key}-back"
    )
    return Upgrade(
        upgrade_id=wish.upgrade_id,
        job_id=old.job_id,
        name=old.name,
        new_id=new.job_id,
        back_id=back.job_id,
        batches=wish.batches,
        within_ms=wish.within_ms,
        restarts=wish.restarts,
        phase=UpgradePhase.STOPPING,
        phase_ms=now,
        began_ms=now,
        target_directory=stop.target_directory,
        stop_deadline_ms=stop.deadline_ms,
        new=new,
        back=back,
        owner=old.owner,
        namespace=old.namespace,
    )
