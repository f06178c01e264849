"""The resource driver for Slurm, over the commands of a fake or of a real Slurm."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs
from tests.support.resource_drivers.fake_slurm import FakeSlurm


def slurm_driver(
    root: Path,
    fake: FakeSlurm | None = None,
    now: Callable[[], float] | None = None,
    memory: str = "4g",
    **settings: str,
) -> SlurmJobs:
    """Return a leader's driver. ``settings``: those of ``resourcemanager.slurm.*``, with "_" for "-".

    ``fake``: whose commands it runs; None for those on the path. ``now``: its clock. Without one, what it knows of the
    queue is always out of date.
    """
    texts = {
        "taskmanager.memory.process.size": memory,
        "resourcemanager.slurm.command-timeout": "2s",
        **({} if fake is None else {"resourcemanager.slurm.bin-dir": str(fake.bin)}),
        **{f"resourcemanager.slurm.{key.replace('_', '-')}": text for key, text in settings.items()},
    }
    configuration = Configuration().with_texts(texts, "test")
    ticks = itertools.count(0.0, 100.0)
    return SlurmJobs(configuration, StateLayout(root, configuration), "10.0.0.1:8081", now=now or (lambda: next(ticks)))
