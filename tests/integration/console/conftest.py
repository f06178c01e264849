"""A browser, and a cluster of two nodes with a slot each, for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.console.browser import chromium

NODES = ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("console"), class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", *QUICK)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()
