"""The slot table of a task manager, kept on disk for the next task manager process in its working directory."""

from __future__ import annotations

from typing import Protocol

from emberkeep.base.clock import Clock
from emberkeep.base.ids import InstanceId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.slots.table import events as ev
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import recall_ended, record_table, restore_table
from emberkeep.slots.table.state import TableLimits, TableState
from emberkeep.taskmanager.agent_record import AgentRecord, OutcomeRecord
from emberkeep.taskmanager.journal import Journal
from emberkeep.taskmanager.ports import DriverKey

UNCONFIRMED = (
    16  # instances in a record that may have registered: this many would have to die within a heartbeat timeout
)


class TableEffects(Protocol):
    """The actor that carries out the decisions of the slot table."""

    def carry_out(self, effect: ev.TableEffect) -> None:
        """Carry out one effect, except the start of a process: the caller of ``decide`` has the request for that."""

    def decided(self) -> None:
        """Do what every decision requires; called after the effects of the decision."""


class KeptTable:
    """The slot table, and the outcomes of the drivers that it lists as ended. Belongs to the turns of one actor.

    After each decision the journal has a record of both. ``instance`` is this process; the record names the newest
    instance that another process knows of, and those since then that it may know of.
    """

    def __init__(
        self, limits: TableLimits, instance: InstanceId, journal: Journal, clock: Clock, actor: TableEffects
    ) -> None:
        self.table = SlotTable(TableState(limits))
        self.outcomes: dict[DriverKey, AttemptOutcome] = {}
        self.journal = journal
        self._clock = clock
        self._actor = actor
        self._instance = instance
        self._known = instance
        self._unconfirmed: tuple[InstanceId, ...] = ()

    def decide(self, event: ev.TableEvent) -> list[ev.TableEffect]:
        """Let the slot table decide on an event; carry out the effects and return them. Raises Conflict, RetryLater."""
        effects = self.table.handle(event, self._clock.monotonic())
        for effect in effects:
            self._actor.carry_out(effect)
        self._actor.decided()
        listed = self.table.state.drivers.by_attempt
        self.outcomes = {key: value for key, value in self.outcomes.items() if (key.job_id, key.attempt) in listed}
        self.keep()
        return effects

    def end_driver(self, key: DriverKey, outcome: AttemptOutcome) -> None:
        """Note the end of a driver. An outcome that is already known stays."""
        self.outcomes.setdefault(key, outcome)
        self.decide(ev.DriverEnded(key.job_id, key.attempt))

    def instance_known(self) -> None:
        """Note that another process knows of this instance. The next record names it."""
        self._known, self._unconfirmed = self._instance, ()

    def restore(self, earlier: AgentRecord) -> None:
        """Continue from the record of the previous task manager process."""
        limits = self.table.state.limits
        self.table = SlotTable(restore_table(limits, earlier.table, self._clock.monotonic()))
        self._known = earlier.instance
        self._unconfirmed = (*earlier.unconfirmed, self._instance)[-UNCONFIRMED:]
        for record in earlier.outcomes:
            self.outcomes[DriverKey(job_id=record.job_id, attempt=record.attempt)] = record.outcome

    def recall_ended(self, key: DriverKey) -> None:
        """Add a driver as ended: the previous task manager process started it, but no record lists it."""
        recall_ended(self.table.state, key.job_id, key.attempt, self._clock.monotonic())

    def keep(self) -> None:
        """Put a record of the current state into the journal."""
        outcomes = tuple(
            OutcomeRecord(job_id=key.job_id, attempt=key.attempt, outcome=outcome)
            for key, outcome in self.outcomes.items()
        )
        self.journal.put(
            AgentRecord(
                instance=self._known,
                table=record_table(self.table.state),
                outcomes=outcomes,
                unconfirmed=self._unconfirmed,
            )
        )
