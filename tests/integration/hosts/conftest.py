"""A network of hosts for each test, or the reason why there can be none here."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hosts.network import Network
from tests.integration.hosts.requirements import why_not

_reason = functools.cache(why_not)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    if reason := _reason():
        pytest.skip(reason)
    network = Network(tmp_path)
    try:
        yield network
    finally:
        network.close()
