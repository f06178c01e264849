"""Who cannot read the shared storage lets others lead that can, and nobody waits for ever."""

import os
import shutil
from collections import deque
from itertools import product
from pathlib import Path

import pytest

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.shared_storage.probe import StorageProbe
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, claim
from emberkeep.leadership.machine import MAX_PASSED, LeadershipMachine
from emberkeep.leadership.model import (
    Connected,
    EpochWritten,
    Event,
    GiveUpLatch,
    Granted,
    ServiceEnded,
    Standing,
    StartService,
    StopService,
    StorageSeen,
    TakeLatch,
    WriteEpoch,
)

ELSEWHERE = StorageSeen(own=False, elsewhere=True)
NOWHERE = StorageSeen(own=False, elsewhere=False)
HERE = StorageSeen(own=True, elsewhere=True)


def after(*events: Event) -> LeadershipMachine:
    machine = LeadershipMachine()
    for event in events:
        machine.handle(event)
        machine.check_invariants()
    return machine


@pytest.mark.req("SAFE-2")
def test_a_turn_is_left_to_another_one_that_has_the_storage() -> None:
    machine = after(Connected(), ELSEWHERE)
    assert machine.handle(Granted(1)) == [GiveUpLatch(1), TakeLatch(2)]
    assert machine.standing is Standing.WAITING
    machine.handle(HERE)
    assert machine.handle(Granted(2)) == [WriteEpoch(1)]


@pytest.mark.req("SAFE-2")
def test_where_nobody_has_it_the_first_one_leads() -> None:
    assert after(Connected(), NOWHERE).handle(Granted(1)) == [WriteEpoch(1)]


@pytest.mark.req("SAFE-2")
def test_after_some_turns_it_leads_whatever_the_others_say() -> None:
    machine = after(Connected(), ELSEWHERE)
    for latch in range(1, MAX_PASSED + 1):
        machine.handle(Granted(latch))
        assert machine.standing is Standing.WAITING
    assert machine.handle(Granted(MAX_PASSED + 1)) == [WriteEpoch(1)]
    machine.handle(EpochWritten(1, 5))
    assert machine.handle(ELSEWHERE) == []
    assert machine.standing is Standing.LEADING


@pytest.mark.req("SAFE-2")
def test_it_leaves_turns_to_others_again_once_it_has_had_the_storage_in_between() -> None:
    machine = after(Connected(), ELSEWHERE)
    for latch in range(1, MAX_PASSED + 1):
        machine.handle(Granted(latch))
    machine.handle(HERE)
    machine.handle(ELSEWHERE)
    assert machine.handle(Granted(MAX_PASSED + 1)) == [GiveUpLatch(MAX_PASSED + 1), TakeLatch(MAX_PASSED + 2)]


@pytest.mark.req("SAFE-2")
def test_a_leader_that_loses_it_steps_down_while_another_one_has_it() -> None:
    machine = after(Connected(), HERE, Granted(1), EpochWritten(1, 5))
    assert machine.handle(NOWHERE) == []
    assert machine.handle(ELSEWHERE) == [StopService(5)]
    assert machine.handle(ELSEWHERE) == []
    assert machine.handle(ServiceEnded(5)) == [GiveUpLatch(1), TakeLatch(2)]


class Contenders:
    """Some JobManagers over one queue. ``holds``: whose storage can be read. What each hears of the others may be as
    old as ``stale`` says."""

    def __init__(self, holds: tuple[bool, ...], said: tuple[bool, ...]) -> None:
        self.machines = [LeadershipMachine() for _ in holds]
        self.queue: deque[tuple[int, int]] = deque()
        self.epoch = 0
        self.told = 0
        for index in range(len(holds)):
            self.tell(index, Connected())
        self.see(holds, said)

    def see(self, holds: tuple[bool, ...], said: tuple[bool, ...]) -> None:
        for index, own in enumerate(holds):
            others = any(words for other, words in enumerate(said) if other != index)
            self.tell(index, StorageSeen(own=own, elsewhere=others))

    def tell(self, index: int, event: Event) -> None:
        self.told += 1
        assert self.told < 1000, "it goes round for ever"
        machine = self.machines[index]
        for effect in machine.handle(event):
            match effect:
                case TakeLatch(latch):
                    self.queue.append((index, latch))
                case GiveUpLatch(latch):
                    self.queue.remove((index, latch))
                case WriteEpoch(number):
                    self.epoch += 1
                    self.tell(index, EpochWritten(number, self.epoch))
                case StopService(epoch):
                    self.tell(index, ServiceEnded(epoch))
                case StartService():
                    pass
        machine.check_invariants()

    def settle(self) -> int | None:
        """Grant the first place until somebody keeps it; returns who leads."""
        while self.queue:
            first, latch = self.queue[0]
            if self.machines[first].standing is Standing.LEADING:
                return first
            self.tell(first, Granted(latch))
        return None


CASES = list(product([False, True], repeat=3))


@pytest.mark.req("SAFE-2")
@pytest.mark.parametrize("holds", CASES)
@pytest.mark.parametrize("said", CASES)
def test_somebody_always_leads_however_wrong_the_words_are(holds: tuple[bool, ...], said: tuple[bool, ...]) -> None:
    contenders = Contenders(holds, said)
    assert contenders.settle() is not None
    for words in (said, holds, said):
        contenders.see(holds, words)
        assert contenders.settle() is not None


@pytest.mark.req("SAFE-2")
@pytest.mark.parametrize("holds", CASES)
@pytest.mark.parametrize("before", CASES)
def test_one_leads_that_has_the_storage_where_any_has_it(holds: tuple[bool, ...], before: tuple[bool, ...]) -> None:
    contenders = Contenders(before, before)
    first = contenders.settle()
    assert first is not None
    assert before[first] or not any(before)
    contenders.see(holds, holds)
    leader = contenders.settle()
    assert leader is not None
    assert holds[leader] or not any(holds)


@pytest.mark.req("SAFE-2")
def test_the_lead_goes_to_where_the_storage_is() -> None:
    contenders = Contenders((True, True, True), (True, True, True))
    assert contenders.settle() == 0
    contenders.see((False, False, False), (False, False, False))
    assert contenders.settle() == 0, "nobody has it: who leads goes on"
    contenders.see((False, False, True), (False, False, True))
    assert contenders.settle() == 2


def probe(storage: Path) -> StorageProbe:
    return StorageProbe(storage, storage, storage / "graphs" / "default", FilePatience(0.2))


class TestProbe:
    @pytest.mark.req("SAFE-2")
    def test_nothing_was_ever_there(self, tmp_path: Path) -> None:
        for storage in (tmp_path / "none", tmp_path):
            sight = probe(storage).look()
            assert (sight.held, sight.problem) == (False, "")

    def test_the_room_that_is_left_is_measured_where_there_is_a_storage(self, tmp_path: Path) -> None:
        assert probe(tmp_path / "none").look().free is None
        free = probe(tmp_path).look().free
        assert free is not None
        assert 0 < free < shutil.disk_usage(tmp_path).total

    @pytest.mark.req("SAFE-2")
    @pytest.mark.parametrize("emptied", [False, True], ids=["gone", "empty mount point"])
    def test_what_was_seen_once_is_missed(self, tmp_path: Path, emptied: bool) -> None:
        storage = tmp_path / "storage"
        (storage / "graphs" / "default").mkdir(parents=True)
        here = probe(storage)
        assert here.look().held
        storage.rename(tmp_path / "elsewhere")
        if emptied:
            storage.mkdir()
        sight = here.look()
        assert not sight.held
        assert str(storage) in sight.problem
        if emptied:
            storage.rmdir()
        (tmp_path / "elsewhere").rename(storage)
        assert here.look() == probe(storage).look()
        assert here.look().held

    @pytest.mark.req("SAFE-2")
    def test_an_ownership_record_is_enough(self, tmp_path: Path) -> None:
        claim(tmp_path, Owner(cluster_id="default", kind=OwnedPlaceKind.STORAGE, created_at_ms=1))
        assert probe(tmp_path).look().held

    @pytest.mark.req("SAFE-2")
    def test_a_file_system_that_does_not_answer_is_no_storage(self, tmp_path: Path) -> None:
        fifo = tmp_path / ".emberkeep-owner"
        os.mkfifo(fifo)  # whoever opens it waits for a writer
        try:
            sight = probe(tmp_path).look()
            assert not sight.held
            assert "does not answer" in sight.problem
        finally:
            os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
