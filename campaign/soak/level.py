"""The level ``soak``: rounds of compressed life on one cluster, until the time is over. The next run continues it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from campaign.processes.cluster import RealCluster
from campaign.processes.history import settle_members
from campaign.soak.drift import drifts
from campaign.soak.figures import SoakFigures
from campaign.soak.life import Life
from campaign.soak.plan import ROUND_SECONDS, draw_round
from campaign.spark.control import Control
from campaign.spark.jobs import NotRecovered

# Everything that is bounded by a number reaches its bound within the first quarter.
SETTINGS: Mapping[str, str] = {
    "jobstore.max-capacity": "20",
    "taskmanager.log.retained-jobs": "5",
    "taskmanager.log.min-age": "1min",
    "high-availability.storage.ended-delay": "1min",
    "high-availability.storage.event-log-delay": "1min",
    "high-availability.storage.unknown-delay": "1min",
    "log.max-size": "64k",
    "log.files": "2",
    "security.audit.max-size": "64k",
    "security.audit.files": "2",
    "blob.retention.interval": "1min",
    "logs.keep.interval": "5s",
    "taskmanager.numberOfTaskSlots": "2",
}
STREAMS = 1
Shown = Callable[[str], None]


async def run(
    figures: SoakFigures,
    seed: int,
    folder: Path,
    until: float,
    show: Shown,
    took: Callable[[], None],
    *,
    streams: int = STREAMS,
    seconds: float = ROUND_SECONDS,
) -> None:
    """Live the next rounds, one at least, until a time (of ``time.monotonic``).

    ``folder``: the cluster's, kept for the next run. ``seconds``: of a round.
    """
    place = folder / f"jobs-{figures.runs}"
    place.mkdir(parents=True)
    figures.runs += 1
    async with RealCluster(folder / "cluster", zookeepers=1, settings=SETTINGS) as cluster:
        await settle_members(cluster)
        async with Control(cluster) as control:
            life = Life(cluster, control, place, streams=streams)
            try:
                await life.begin()
                is_over = False
                while not is_over:
                    began = time.monotonic()
                    await life.round(draw_round(seed, figures.rounds), seconds, figures.seconds)
                    figures.took(life.counts, life.samples, life.problems, time.monotonic() - began)
                    life.counts.clear()
                    life.samples, life.problems = [], []
                    took()
                    show(_said(figures))
                    is_over = time.monotonic() >= until
                await life.end()
            except (NotRecovered, TimeoutError) as error:
                figures.problems.append(str(error))
                show(f"error: {error}")
    took()


def _said(figures: SoakFigures) -> str:
    growing = [f"{each.subject}, {each.value} {each.change:+.1%}" for each in drifts(figures.samples) if each.grows]
    more = f", growing: {'; '.join(growing)}" if growing else ""
    return f"{figures.rounds} rounds, {sum(figures.deeds.values())} deeds, {len(figures.problems)} problems{more}"
