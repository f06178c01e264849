"""Where things lie: what one cluster cleans up must never be another one's."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration

SHARED = {"high-availability.storageDir": "/mnt/shared", "high-availability.type": "zookeeper"}


def layout(**options: str) -> StateLayout:
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    return StateLayout(Path("/state"), Configuration().with_texts({**SHARED, **given}, "test"))


def test_clusters_that_share_a_storage_have_nothing_in_common_there() -> None:
    one, other = (layout(high__availability_cluster__id=name) for name in ("one", "other"))
    for kind in ("graphs", "ha_blobs", "checkpoints"):
        assert str(getattr(one, kind)) != str(getattr(other, kind))
        assert str(getattr(one, kind)).startswith("/mnt/shared/")


def test_a_job_manager_that_stands_alone_has_its_storage_for_itself() -> None:
    alone = layout(high__availability_type="embedded")
    assert (alone.checkpoints, alone.ha_blobs) == (Path("/mnt/shared/checkpoints"), "/mnt/shared/blobs")
