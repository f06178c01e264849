"""What the tests with real processes share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.class_archive import build_class_archive
from tests.conftest import TOLERATED
from tests.integration.commands import Shell


@pytest.fixture(scope="session")
def class_archive(pytestconfig: pytest.Config) -> Path:
    """Built once per checkout: it halves the start of every JVM of these tests."""
    return build_class_archive(find_java(os.environ), pytestconfig.cache.mkdir("class-archives"), os.environ)


@pytest.fixture
def tolerate(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Note what went wrong, was tried again and is no failure: the summary of the run shows it."""
    return partial(record_property, TOLERATED)


@pytest.fixture
def shell(tmp_path: Path, class_archive: Path) -> Iterator[Shell]:
    """A user's shell; whatever it has started is gone afterwards, or the test fails."""
    shell = Shell(tmp_path, class_archive.parent)
    try:
        with shell.traces.watching():
            yield shell
        shell.traces.check_nothing_left()
    finally:
        shell.traces.kill()
