"""``python -m campaign.hunt SEED WORLDS``: play worlds until one fails, and print which, as JSON.

``campaign.planted`` runs it over a copy of the product.
"""

from __future__ import annotations

import gc
import sys
import time

import msgspec

import emberkeep
from campaign.planted import Found
from campaign.playing import play_world
from campaign.simulation import CHUNK, world_of


def main(seed: int, worlds: int) -> None:
    found, violation = None, ""
    gc.disable()
    for number in range(worlds):
        played = play_world(world_of(seed, number, ()))
        if played.report.violations:
            found, violation = number + 1, played.violation
            break
        if number % CHUNK == 0:
            gc.collect()
    result = Found(str(emberkeep.__file__), found, violation, time.process_time())
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
