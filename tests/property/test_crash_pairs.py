"""Two components on disks of their own: crashes of both at once, and of one after the other."""

from __future__ import annotations

import random
from itertools import islice
from unittest import mock

import pytest

from emberkeep.adapters.state.journal import FileRenameJournal
from tests.campaign import CAMPAIGN, examples
from tests.support.crashes.everything import PAIRS
from tests.support.crashes.pairs.driver_and_gateway import PAIR as DRIVER_AND_GATEWAY
from tests.support.crashes.pairs.pair import (
    Pair,
    PlannedCrash,
    every_crash_at_once,
    some_crashes_in_turn,
    steps_of,
    try_crashes,
)
from tests.support.crashes.places import scratch_directory

SEED = str(CAMPAIGN or 1)
SAMPLE = 20


@pytest.mark.campaign
@pytest.mark.req("LOC-7", "END-7")
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_no_promise_is_broken_by_crashes_of_two_machines(pair: Pair) -> None:
    with scratch_directory() as scratch:
        steps = steps_of(pair, scratch / "count")
        assert min(steps) > 20
        at_once = random.Random(SEED).sample(list(every_crash_at_once(steps)), examples(SAMPLE))
        in_turn = islice(some_crashes_in_turn(steps, SEED), examples(SAMPLE))
        failures = [try_crashes(pair, crashes, scratch) for crashes in (*at_once, *in_turn)]
    assert not any(failures), "\n".join(filter(None, failures))


def test_a_forgotten_rename_is_noticed() -> None:
    """Without its journal, a gateway tells the driver that a file which it has renamed does not exist."""
    with scratch_directory() as scratch:
        steps = steps_of(DRIVER_AND_GATEWAY, scratch / "count")
        with mock.patch.object(FileRenameJournal, "knows", return_value=False):
            crashes: list[tuple[PlannedCrash, ...]] = list(every_crash_at_once(steps))
            assert any(try_crashes(DRIVER_AND_GATEWAY, each, scratch) for each in crashes[::25])
