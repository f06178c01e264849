"""The resource driver for Slurm over Slurm's commands of a test."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.jobmanager.resource_drivers.slurm_jobs import SlurmJobs
from tests.support.resource_drivers.fake_slurm import FakeSlurm


def slurm_driver(root: Path, slurm: FakeSlurm, now: Callable[[], float] | None = None, **settings: str) -> SlurmJobs:
    """Return a leader's driver. ``settings``: those of ``resourcemanager.slurm.*``, with "_" for "-".

    ``now``: its clock. Without one, its queue is always out of date.
    """
    texts = {
        "taskmanager.memory.process.size": "4g",
        "resourcemanager.slurm.bin-dir": str(slurm.bin),
        "resourcemanager.slurm.command-timeout": "2s",
        **{f"resourcemanager.slurm.{key.replace('_', '-')}": text for key, text in settings.items()},
    }
    configuration = Configuration().with_texts(texts, "test")
    ticks = itertools.count(0.0, 100.0)
    return SlurmJobs(configuration, StateLayout(root, configuration), "10.0.0.1:8081", now=now or (lambda: next(ticks)))
