"""One leader's term: the epoch that all its orders carry, its clocks and its right to decide."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import System
from emberkeep.chronicle.ports import Chronicle
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs.hearing import Hearing
from emberkeep.jobs.ports import JobStore


@dataclass(frozen=True)
class Term:
    """The facts that the actors of one leader share, from the opening of its job store to the end of its leadership.

    ``lineage`` names the job store. ``clock`` stops while ``authority`` is in doubt. ``noted``:
    the instances of task managers whose registration is in the chronicle of an earlier leader.
    """

    epoch: int
    lineage: str
    started_ms: int
    clock: SteadyClock
    hearing: Hearing
    authority: Authority
    chronicle: Chronicle
    noted: frozenset[str]


def begin_term(
    system: System,
    configuration: Configuration,
    store: JobStore,
    epoch: int,
    chronicle: Chronicle,
    *,
    drivers: bool,
    noted: frozenset[str] = frozenset(),
) -> Term:
    """Begin a term with an open job store. ``drivers``: True if drivers of an earlier leader may still run."""
    clock = SteadyClock(system.clock)
    hearing = Hearing(
        clock.now(),
        # Silence is noticed after half the timeout; conclusions are drawn from it only after the whole timeout.
        patience=configuration[HEARTBEAT_TIMEOUT] / 2,
        longest_doubt=configuration[DRIVER_LEASE],
        deafness=configuration[ORPHAN_TIMEOUT] if drivers else None,
    )
    authority = Authority(
        system.clock,
        clock,
        hearing,
        store.confirm,
        chronicle,
        patience=configuration[RPC_TIMEOUT],
        forgiving=configuration[HEARTBEAT_INTERVAL],
    )
    return Term(epoch, store.lineage, system.clock.now_ms(), clock, hearing, authority, chronicle, noted)
