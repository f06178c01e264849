"""A network of hosts for each test, or the reason why there can be none here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.hosts import disks
from tests.integration.hosts.disks import SharedDisk
from tests.integration.hosts.network import Network
from tests.integration.hosts.requirements import why_not

_reason = functools.cache(why_not)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if reason := _reason():
        pytest.skip(reason)
    with closing(Network(tmp_path)) as network:
        yield network


@pytest.fixture
def network_with_disk(tmp_path: Path) -> Iterator[Network]:
    """Its shared directory is on a disk of its own, ``network.disk``."""
    if reason := _reason() or disks.why_not():
        pytest.skip(reason)
    with closing(SharedDisk(tmp_path)) as disk, closing(Network(tmp_path, disk)) as network:
        yield network
