"""What an upgrade does now, or how it has ended, in words. Pure."""

from __future__ import annotations

from emberkeep.jobs.upgrades.machine import good_batches
from emberkeep.jobs.upgrades.model import QueryFacts, Upgrade, UpgradePhase

_SHORT = 8  # digits of a job's id


def upgrade_text(upgrade: Upgrade, queries: tuple[QueryFacts, ...] = (), end: str = "") -> str:
    """Return one line.

    ``queries``: those of the new job, while it is watched. ``end``: how the job has ended that the upgrade has left
    running, such as ``is CANCELED``; "" while it runs.
    """
    if not end or upgrade.kept_job is None:
        return _text(upgrade, queries)
    return f"{_text(upgrade, queries, has_ended=True)}; job {upgrade.kept_job[:_SHORT]} {end}"


def _text(upgrade: Upgrade, queries: tuple[QueryFacts, ...], *, has_ended: bool = False) -> str:
    old, new, back = (each[:_SHORT] for each in upgrade.jobs)
    match upgrade.phase:
        case UpgradePhase.STOPPING:
            return f"stopping job {old} with a savepoint"
        case UpgradePhase.STARTING:
            return f"job {old} has stopped; starting the new code as job {new} from {upgrade.savepoint}"
        case UpgradePhase.WATCHING:
            return f"watching job {new}, which runs the new code: {_counts(upgrade, queries)}"
        case UpgradePhase.CANCELLING:
            return f"going back, because {upgrade.reason}; cancelling job {new}"
        case UpgradePhase.RETURNING:
            return f"going back, because {upgrade.reason}; starting the old code as job {back} from {upgrade.savepoint}"
        case UpgradePhase.DONE:
            return f"the new code {'ran' if has_ended else 'runs'} as job {new}"
        case UpgradePhase.RETURNED:
            return f"the old code was started again, as job {back}, because {upgrade.reason}"
        case UpgradePhase.UNCHANGED:
            return f"job {old} {'was not upgraded' if has_ended else 'continues as before'}: {upgrade.reason}"
        case UpgradePhase.FAILED:
            where = f"; the savepoint is {upgrade.savepoint}" if upgrade.savepoint else ""
            return f"no version of the job is kept running: {upgrade.reason}{where}"


def _counts(upgrade: Upgrade, queries: tuple[QueryFacts, ...]) -> str:
    if not queries:
        return "none of its queries has reported yet"
    shown = ", ".join(f"{each.name} {min(good_batches(upgrade, each), upgrade.batches)}" for each in queries[:5])
    more = f" and {len(queries) - 5} more" if len(queries) > 5 else ""
    return f"of {upgrade.batches} good batches: {shown}{more}"
