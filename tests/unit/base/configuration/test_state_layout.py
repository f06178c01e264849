"""Where things lie: what one cluster cleans up must never be another one's."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import StateLayout, state_layout
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


OWN = pwd.getpwuid(os.getuid()).pw_dir


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"HOME": "/homes/ann"}, "/homes/ann/.local/state"),
        ({"HOME": "/homes/ann", "XDG_STATE_HOME": "/var/ann"}, "/var/ann"),
        ({"HOME": "/homes/ann", "XDG_STATE_HOME": "ann"}, "/homes/ann/.local/state"),
        ({}, f"{OWN}/.local/state"),
        ({"HOME": ""}, f"{OWN}/.local/state"),
        ({"HOME": "ann"}, f"{OWN}/.local/state"),
    ],
)
def test_the_state_directory_does_not_depend_on_where_a_process_was_started(
    environ: dict[str, str], place: str
) -> None:
    assert state_layout(Configuration(), environ).root == Path(place) / "emberkeep"
