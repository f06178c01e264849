"""What the next leader knows of the usage of nodes."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Damaged
from emberkeep.base.ids import TaskManagerId
from emberkeep.usage.encoding import decode_usage, encode_usage
from emberkeep.usage.histories import GONE_KEPT, KeptHistories, UsageHistories
from emberkeep.usage.history import EARLIER_STEPS, SAMPLES_KEPT, UsageHistory, is_well_formed
from tests.unit.usage.test_history import START, STEP, reading

TM = TaskManagerId("tm-1")


def history(first: int, end: int, *, disk: int = 50_000) -> UsageHistory:
    """A history with a reading in each of the intervals from ``first`` to before ``end``."""
    made = UsageHistory(STEP)
    for number in range(first, end):
        made.note(reading(taken=number % 4, disk=disk), START + number * STEP)
    return made


def histories(end: int, *names: str) -> UsageHistories:
    made = UsageHistories(STEP)
    for name in names:
        for number in range(end):
            made.note(TaskManagerId(name), reading(), START + number * STEP)
    return made


def times(found: UsageHistory) -> list[int]:
    return [(one.time_ms - START) // STEP for one in found.samples()]


def test_the_next_leader_continues_that_of_all_slots() -> None:
    before, after = UsageHistories(STEP), UsageHistories(STEP)
    for number in range(5):
        before.note_slots(8, number, START + number * STEP)
    after.continue_from(decode_usage(encode_usage(before.kept()), where="test"))
    after.note_slots(8, 7, START + 5 * STEP)

    assert [sample.slots_taken for sample in after.cluster.samples()] == [0, 1, 2, 3, 4, 7]


def test_a_leader_of_an_earlier_release_has_kept_nothing_of_all_slots() -> None:
    after = UsageHistories(STEP)
    after.continue_from(msgspec.structs.replace(histories(3, "tm-1").kept(), cluster=None))
    assert after.cluster.samples() == ()
    assert len(after.of(TM).samples()) == 3


def test_damaged_samples_of_all_slots_are_noticed() -> None:
    written = msgspec.structs.replace(
        histories(3, "tm-1").kept(), cluster=msgspec.structs.replace(history(0, 2).kept(), samples=b"odd")
    )
    with pytest.raises(Damaged):
        decode_usage(encode_usage(written), where="test")


@pytest.mark.parametrize("length", [1, 7, SAMPLES_KEPT, SAMPLES_KEPT + 50, 5 * SAMPLES_KEPT])
def test_the_next_leader_continues_a_history(length: int) -> None:
    before, after = history(0, length), UsageHistory(STEP)
    after.continue_from(before.kept())
    assert (after.samples(), after.since_ms) == (before.samples(), before.since_ms)
    assert after.earlier() == before.earlier()

    for each in (before, after):
        each.note(reading(), START + length * STEP)
    assert after.samples() == before.samples()
    assert after.earlier() == before.earlier()


def test_the_next_leader_may_begin_in_the_interval_in_which_the_last_one_ended() -> None:
    after = UsageHistory(STEP)
    after.continue_from(history(0, 3).kept())
    after.note(reading(), START + 2 * STEP + 5_000)
    assert times(after) == [0, 1, 2]


def test_readings_that_came_before_the_stored_ones_were_read_are_kept() -> None:
    after = history(4, 7)
    after.continue_from(history(0, 6).kept())
    assert times(after) == list(range(7))
    assert after.since_ms == START
    for number in range(7, 2 * SAMPLES_KEPT):
        after.note(reading(), START + number * STEP)
    assert times(after) == list(range(SAMPLES_KEPT, 2 * SAMPLES_KEPT))


def test_what_is_too_old_beside_the_next_leaders_own_readings_is_thinned() -> None:
    after = history(400, 800)  # the storage could not be read for more than an hour
    after.continue_from(history(0, 390).kept())
    begin = START - START % (EARLIER_STEPS * STEP)
    assert [one.time_ms for one in after.earlier()] == list(
        range(begin, after.samples()[0].time_ms, EARLIER_STEPS * STEP)
    )
    assert is_well_formed(after.kept().earlier)


def test_a_leader_of_an_earlier_release_has_kept_an_hour() -> None:
    after = UsageHistory(STEP)
    after.continue_from(msgspec.structs.replace(history(0, 2 * SAMPLES_KEPT).kept(), earlier=b""))
    assert (after.earlier(), len(after.samples())) == ((), SAMPLES_KEPT)


def test_nothing_of_the_future_is_taken_over() -> None:
    after = history(0, 2)
    after.continue_from(history(50, 60).kept())
    assert times(after) == [0, 1]


def test_a_disk_is_full_since_the_time_that_an_earlier_leader_knows() -> None:
    earlier = history(0, 3, disk=10).kept()
    for after, since in ((UsageHistory(STEP), START), (history(4, 5, disk=10), START), (history(4, 5), 0)):
        after.continue_from(earlier)
        assert after.disk_low_since_ms == since


def test_all_task_managers_that_the_leader_before_knew_may_come_back() -> None:
    names = [f"tm-{number}" for number in range(3 * GONE_KEPT)]
    after = UsageHistories(STEP)
    after.continue_from(histories(2, *names).kept())
    for name in names:
        after.note(TaskManagerId(name), reading(), START + 2 * STEP)
    assert {len(after.of(TaskManagerId(name)).samples()) for name in names} == {3}


def test_those_that_do_not_come_back_are_forgotten_but_for_the_newest() -> None:
    names = [f"tm-{number:03}" for number in range(3 * GONE_KEPT)]
    after = UsageHistories(STEP)
    after.continue_from(histories(2, *names).kept())
    assert sorted(after.kept().task_managers) == names[-GONE_KEPT:]


def test_one_that_has_left_before_the_stored_ones_were_read_keeps_its_own_readings() -> None:
    after = UsageHistories(STEP)
    after.note(TM, reading(), START + 2 * STEP)
    after.left(TM)
    after.continue_from(histories(2, TM).kept())
    assert times(after.of(TM)) == [0, 1, 2]


def test_samples_of_another_length_are_not_mixed() -> None:
    after = UsageHistories(2 * STEP)
    after.continue_from(histories(2, TM).kept())
    assert after.of(TM).samples() == ()


def test_the_written_form_keeps_everything() -> None:
    kept = histories(5, TM, "tm-2").kept()
    assert decode_usage(encode_usage(kept), where="here") == kept


def test_what_is_kept_of_many_task_managers_is_small() -> None:
    names = [f"tm-{number}" for number in range(20)]
    assert len(encode_usage(histories(5 * SAMPLES_KEPT, *names).kept())) < 20 * 18_000


@pytest.mark.parametrize("field", ["samples", "earlier"])
@pytest.mark.parametrize("samples", [b"x", b"\0" * 48])
def test_samples_that_are_cut_off_or_out_of_order_are_damage(samples: bytes, field: str) -> None:
    kept = histories(1, TM).kept().task_managers[TM]
    damaged = KeptHistories(step_ms=STEP, task_managers={TM: msgspec.structs.replace(kept, **{field: samples})})
    with pytest.raises(Damaged, match="here: samples"):
        decode_usage(encode_usage(damaged), where="here")
