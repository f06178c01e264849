"""A coordination service, two JobManagers and their jobs as plain data, one atomic step at a time.

Whatever takes time in reality (a notification, a transaction on its way, a driver's report) is a step of its own here,
so that a search over all orders of the steps covers all interleavings. ``fenced`` False takes the epoch check out of
the transactions, ``patient`` False lets a JobManager acknowledge an end before it is stored: a test that then finds
nothing wrong would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from emberkeep.leadership import model
from emberkeep.leadership.machine import LeadershipMachine


@dataclass(frozen=True)
class Write:
    """A transaction on its way to the store."""

    what: str  # "epoch", "create", "attempt" or "result"
    epoch: int  # that the writer leads with; for "epoch": that it has seen
    job: str = ""
    number: int = 0  # attempt, or claim


@dataclass(frozen=True)
class Step:
    """One thing that may happen next."""

    what: str
    who: str = ""
    job: str = ""


@dataclass(frozen=True)
class Done:
    """The store has carried out a write."""

    write: Write


@dataclass(frozen=True)
class Reported:
    """A driver's report: it has finished, or it was lost."""

    job: str
    attempt: int
    finished: bool


Note: TypeAlias = model.Event | Done | Reported
COPIED = ("session", "standing", "epoch", "_latch", "_has_latch", "_claim", "_closing")


class Contender:
    """A JobManager. ``jobs``: what it believes: the newest attempt of each job that it has to see to."""

    def __init__(self) -> None:
        self.machine = LeadershipMachine()
        self.notes: list[Note] = [model.Connected()]
        self.writes: list[Write] = []
        self.jobs: dict[str, int] = {}

    def copy(self) -> Contender:
        twin = Contender()
        for name in COPIED:
            setattr(twin.machine, name, getattr(self.machine, name))
        twin.notes, twin.writes, twin.jobs = list(self.notes), list(self.writes), dict(self.jobs)
        return twin

    def key(self) -> tuple[Any, ...]:
        state = tuple(getattr(self.machine, name) for name in COPIED)
        return (*state, tuple(self.notes), tuple(self.writes), tuple(sorted(self.jobs.items())))


class Budget(NamedTuple):
    """How often each kind of trouble may still happen."""

    submissions: int = 1
    expirations: int = 2
    suspensions: int = 0
    deaths: int = 0


class World:
    """``handles`` and ``results`` are what the store holds, ``drivers`` what runs, ``ends`` the successes that drivers,
    and task managers after them, keep until they are acknowledged."""

    def __init__(self, budget: Budget, *, fenced: bool = True, patient: bool = True) -> None:
        self.budget = budget
        self.fenced = fenced
        self.patient = patient
        self.contenders = {"A": Contender(), "B": Contender()}
        self.queue: list[tuple[str, int]] = []
        self.epoch = 0
        self.accepted: set[str] = set()
        self.handles: dict[str, int] = {}
        self.results: set[str] = set()
        self.drivers: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.finished: set[str] = set()
        self.started_epoch = 0  # the task manager's fence
        self.started: dict[str, int] = {}

    def copy(self) -> World:
        twin = World(self.budget, fenced=self.fenced, patient=self.patient)
        twin.contenders = {name: contender.copy() for name, contender in self.contenders.items()}
        twin.queue, twin.epoch, twin.started_epoch = list(self.queue), self.epoch, self.started_epoch
        twin.accepted, twin.results = set(self.accepted), set(self.results)
        twin.ends, twin.finished = dict(self.ends), set(self.finished)
        twin.handles, twin.drivers, twin.started = dict(self.handles), dict(self.drivers), dict(self.started)
        return twin

    def key(self) -> tuple[Any, ...]:
        maps = (self.handles, self.drivers, self.started, self.ends)
        return (
            self.budget,
            *(contender.key() for contender in self.contenders.values()),
            tuple(self.queue),
            self.epoch,
            self.started_epoch,
            tuple(sorted(self.results)),
            tuple(sorted(self.finished)),
            *(tuple(sorted(each.items())) for each in maps),
        )

    # --- what may happen ----------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        for name, contender in self.contenders.items():
            if contender.notes:
                yield Step("deliver", name)
            if contender.writes:
                yield Step("carry out", name)
            if self.budget.expirations and contender.machine.session is not model.Session.AWAY:
                yield Step("expire", name)
            if self.budget.suspensions and contender.machine.session is model.Session.CONNECTED:
                yield Step("suspend", name)
            if self.budget.submissions and contender.machine.may_decide:
                yield Step("submit", name)
        for job in self.drivers:
            yield Step("finish", job=job)
            if self.budget.deaths:
                yield Step("die", job=job)

    def take(self, step: Step) -> None:
        match step.what:
            case "deliver":
                self._deliver(step.who, self.contenders[step.who].notes.pop(0))
            case "carry out":
                self._carry_out(step.who, self.contenders[step.who].writes.pop(0))
            case "expire":
                self._spend("expirations")
                self.contenders[step.who].notes += [model.Lost(), model.Connected()]
                self._leave(step.who)
            case "suspend":
                self._spend("suspensions")
                self.contenders[step.who].notes += [model.Suspended(), model.Connected()]
            case "submit":
                job = f"job {self.budget.submissions}"
                self._spend("submissions")
                contender = self.contenders[step.who]
                contender.writes.append(Write("create", contender.machine.epoch, job))
            case _:
                self._end_driver(step.job, finished=step.what == "finish")
        self.check()

    def _spend(self, what: str) -> None:
        self.budget = self.budget._replace(**{what: getattr(self.budget, what) - 1})

    def _end_driver(self, job: str, *, finished: bool) -> None:
        """Its end is told to everybody who believes to lead; whoever comes later is told of a success that is kept, or
        finds no driver."""
        if not finished:
            self._spend("deaths")
        attempt = self.drivers.pop(job)
        if finished:
            self.ends[job] = attempt
            self.finished.add(job)
        for contender in self.contenders.values():
            if job in contender.jobs:
                contender.notes.append(Reported(job, attempt, finished))

    # --- JobManagers --------------------------------------------------------------------------------------------------

    def _deliver(self, name: str, note: Note) -> None:
        contender = self.contenders[name]
        match note:
            case Done(write):
                self._written(contender, write)
            case Reported(job, attempt, finished):
                if finished and not self.patient and contender.jobs.get(job) == attempt:
                    self.ends.pop(job, None)  # answered, paused or not, and before it is stored
                if contender.machine.may_decide and contender.jobs.get(job) == attempt:
                    write = Write("result", contender.machine.epoch, job)
                    contender.writes.append(write if finished else replace(write, what="attempt", number=attempt + 1))
                elif contender.jobs.get(job) == attempt:
                    contender.notes.append(note)  # not answered while paused: the driver reports again
            case _:
                decided, epoch = contender.machine.may_decide, contender.machine.epoch
                for effect in contender.machine.handle(note):
                    self._perform(name, contender, effect)
                self._check_decision(contender.machine, note, decided=decided, epoch=epoch)
        contender.machine.check_invariants()

    @staticmethod
    def _check_decision(machine: LeadershipMachine, note: model.Event, *, decided: bool, epoch: int) -> None:
        """Whoever cannot confirm its epoch decides nothing, and a new connection alone confirms nothing."""
        if machine.may_decide:
            assert not isinstance(note, model.Suspended | model.Lost), f"decides after {note}"
            assert note != model.Deposed(epoch), f"decides after {note}"
            assert decided or not isinstance(note, model.Connected), "decides again, its epoch not confirmed"

    def _perform(self, name: str, contender: Contender, effect: model.Effect) -> None:
        match effect:
            case model.TakeLatch() if model.Lost() in contender.notes:
                pass  # the session that it would belong to is over
            case model.TakeLatch(latch):
                self.queue.append((name, latch))
                if len(self.queue) == 1:
                    contender.notes.append(model.Granted(latch))
            case model.GiveUpLatch():
                self._leave(name)
            case model.WriteEpoch(claim):
                contender.writes.append(Write("epoch", self.epoch, number=claim))
            case model.AbandonClaim():
                contender.writes = [write for write in contender.writes if write.what != "epoch"]
            case model.StartService(epoch):
                self._recover(contender, epoch)
                self._tell_deposed(contender)  # it looks as it begins to watch
            case model.ConfirmEpoch(epoch):
                contender.notes.append(model.Confirmed(epoch) if epoch == self.epoch else model.Deposed(epoch))
            case model.StopService(epoch):
                contender.jobs.clear()
                contender.notes.append(model.ServiceEnded(epoch))
            case _:
                pass

    def _recover(self, contender: Contender, epoch: int) -> None:
        """Attach what is alive, start the rest again."""
        contender.jobs = dict(self.handles)
        self.started_epoch = max(self.started_epoch, epoch)
        for job, attempt in self.handles.items():
            if job in self.ends:
                contender.notes.append(Reported(job, self.ends[job], finished=True))
            elif job not in self.drivers:
                contender.writes.append(Write("attempt", epoch, job, attempt + 1))

    def _written(self, contender: Contender, write: Write) -> None:
        if contender.machine.epoch != write.epoch or contender.machine.standing is model.Standing.STOPPING:
            return
        match write.what:
            case "create":
                contender.jobs[write.job] = 0
                contender.writes.append(Write("attempt", write.epoch, write.job, 1))
            case "attempt":
                contender.jobs[write.job] = write.number
                self._start(write)
            case _:
                contender.jobs.pop(write.job, None)
                self.ends.pop(write.job, None)

    def _start(self, write: Write) -> None:
        """The task manager's side: older epochs and attempts are refused."""
        if self.fenced and (write.epoch < self.started_epoch or write.number <= self.started.get(write.job, 0)):
            return
        self.started_epoch = max(self.started_epoch, write.epoch)
        self.started[write.job] = write.number
        self.drivers[write.job] = write.number
        assert write.job not in self.results, f"{write.job} has ended and is run again"
        assert write.job not in self.finished, f"the success of {write.job} was reported, and it is run again"

    # --- the store ----------------------------------------------------------------------------------------------------

    def _leave(self, name: str) -> None:
        first = self.queue[:1]
        self.queue = [place for place in self.queue if place[0] != name]
        if self.queue and self.queue[:1] != first:
            head, latch = self.queue[0]
            self.contenders[head].notes.append(model.Granted(latch))

    def _carry_out(self, name: str, write: Write) -> None:
        notes = self.contenders[name].notes
        if write.what == "epoch":
            if self.fenced and write.epoch != self.epoch:
                notes.append(model.ClaimRefused(write.number))
                return
            self.epoch += 1
            notes.append(model.EpochWritten(write.number, self.epoch))
            self._tell_deposed(*self.contenders.values())
            return
        if self.fenced and write.epoch != self.epoch:
            notes.append(model.Deposed(write.epoch))
            return
        if self._apply(write):
            notes.append(Done(write))

    def _tell_deposed(self, *contenders: Contender) -> None:
        """Leaders watch the epoch; what they hear late does no harm."""
        for contender in contenders:
            if 0 < contender.machine.epoch < self.epoch:
                contender.notes.append(model.Deposed(contender.machine.epoch))

    def _apply(self, write: Write) -> bool:
        match write.what:
            case "create":
                self.handles[write.job] = 0
                self.accepted.add(write.job)
            case "attempt":
                if write.job not in self.handles or write.number <= self.handles[write.job]:
                    return False
                self.handles[write.job] = write.number
            case _:
                self.handles.pop(write.job, None)
                self.results.add(write.job)
        return True

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        both = self.handles.keys() & self.results
        assert not both, f"{both} have ended and would be run again"
        lost = self.accepted - self.handles.keys() - self.results
        assert not lost, f"{lost} were accepted and are in no store"
        for job, attempt in self.drivers.items():
            assert job in self.handles, f"attempt {attempt} of {job} runs without a handle"
        deciding = [name for name, contender in self.contenders.items() if contender.machine.may_decide]
        newest = [name for name in deciding if self.contenders[name].machine.epoch == self.epoch]
        assert len(newest) <= 1, f"{newest} lead with the same epoch"
