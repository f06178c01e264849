"""The simulation of peer fetch: what the server sends stays the same, however many caches ask."""

from __future__ import annotations

import pytest

from bench.blobs.swarm import fetch
from emberkeep.base.configuration.options.blobs import BLOB_DIRECT_DOWNLOADS


@pytest.mark.req("BLOB-22")
@pytest.mark.parametrize("caches", [1, 10, 100, 1_000])
def test_the_server_sends_a_few_copies_however_many_caches_ask(caches: int) -> None:
    copies, rounds = fetch(caches, 0.0, seed=1)
    assert copies <= BLOB_DIRECT_DOWNLOADS.default
    assert rounds <= 8  # it grows with the logarithm


@pytest.mark.req("BLOB-22")
def test_peers_that_fail_cost_the_server_some_copies_and_nobody_goes_without() -> None:
    copies, _ = fetch(1_000, 0.1, seed=1)
    assert copies < 200
