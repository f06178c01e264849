"""What happens in one history under load: leaders that are lost, with their times, drawn from a seed."""

from __future__ import annotations

import random

from campaign.processes.plan import HistoryPlan, PlannedFault

PAUSES = (4.0, 12.0)  # seconds between two losses of a leader
SHARE_OF_FREEZES = 0.2  # a leader that is stopped for long is deposed, and goes on afterwards
_FREEZES = (0.5, 8.0)
_AWAY = 1.5  # seconds until a killed JobManager starts again, at most


def draw_plan(seed: str, seconds: float) -> HistoryPlan:
    """Draw a history of so many seconds."""
    chance = random.Random(f"{seed}/load")
    faults: list[PlannedFault] = []
    at = 0.0
    while (at := at + chance.uniform(*PAUSES)) < seconds:
        is_freeze = chance.random() < SHARE_OF_FREEZES
        lasts = chance.uniform(*_FREEZES) if is_freeze else chance.uniform(0.0, _AWAY)
        kind = "freeze leader" if is_freeze else "kill leader"
        faults.append(PlannedFault(round(at, 3), kind, len(faults), round(lasts, 3)))
    return HistoryPlan(seed, seconds, tuple(faults))
