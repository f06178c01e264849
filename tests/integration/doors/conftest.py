"""What tests of PySpark's other doors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "site", class_archive.parent))
    try:
        cluster.up("--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()
