"""``python -m campaign.hunt SEED WORLDS``: play worlds until one breaks a rule, and print which, as JSON.

``campaign.planted`` runs it over a copy of the product. Only the view from outside counts: a process that ends with an
unexpected error, or an invariant that a state machine checks itself, finds no planted bug here.
"""

from __future__ import annotations

import gc
import sys
import time

import msgspec

import emberkeep
from campaign.coverage import RULES
from campaign.planted import Found
from campaign.playing import play_world
from campaign.simulation import CHUNK, world_of
from tests.support.simulator.properties import Properties


def main(seed: int, worlds: int) -> None:
    found, violation = None, ""
    # What the machines check themselves would notice some bugs; here the view from outside has to.
    Properties._check_invariants = lambda _: None  # type: ignore[method-assign, assignment]
    gc.disable()
    for number in range(worlds):
        played = play_world(world_of(seed, number, ()))
        if played.violation.partition(":")[0] in tuple(RULES):
            found, violation = number + 1, played.violation
            break
        if number % CHUNK == 0:
            gc.collect()
    result = Found(str(emberkeep.__file__), found, violation, time.process_time())
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
