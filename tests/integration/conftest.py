"""What the tests with real processes share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import TOLERATED
from tests.integration import class_archives
from tests.integration.commands import Shell, watched

_building = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the class archive beside the fast tests, which come first, if a test is going to need it.

    Every worker of xdist starts this; the first builds, the others find the archive or wait.
    """
    needed = any(class_archives.FIXTURE in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        session.config.stash[_building] = class_archives.build_beside(class_archives.directory(session.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no process behind: a run that ends early does not wait for the archive."""
    building = config.stash.get(_building, None)
    if building is not None:
        class_archives.give_up(building)


@pytest.fixture(scope="session")
def class_archive(pytestconfig: pytest.Config) -> Path:
    """Built once per checkout: it halves the start of every JVM of these tests."""
    return class_archives.build(str(class_archives.directory(pytestconfig)))


@pytest.fixture
def tolerate(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Note what went wrong, was tried again and is no failure: the summary of the run shows it."""
    return partial(record_property, TOLERATED)


@pytest.fixture
def shell(tmp_path: Path, class_archive: Path) -> Iterator[Shell]:
    """A user's shell; whatever it has started is gone afterwards, or the test fails."""
    with watched(Shell(tmp_path, class_archive.parent)) as shell:
        yield shell
