"""The resource driver for Kubernetes, over a fake or over a real API server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.jobmanager.resource_drivers.kubernetes_pods import KubernetesPods, PodApi


def kubernetes_driver(
    root: Path,
    api: PodApi,
    settings: Mapping[str, str] | None = None,
    now: Callable[[], float] | None = None,
) -> KubernetesPods:
    """Return a leader's driver.

    ``now``: its clock. Without one, what it knows of the pods is always out of date.
    """
    texts = {
        "taskmanager.memory.process.size": "1g",
        "kubernetes.container.image.ref": "emberkeep:test",
        **(settings or {}),
    }
    configuration = Configuration().with_texts(texts, "test")
    ticks = itertools.count(0.0, 100.0)
    return KubernetesPods(
        configuration, StateLayout(root, configuration), "10.0.0.1:8081", api, now=now or (lambda: next(ticks))
    )
