"""What every test gets."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Emberkeep runs on asyncio; no second event loop is supported."""
    return "asyncio"


class FilesThenIntegration(LoadFileScheduling):  # type: ignore[misc]
    """Among several workers: the files of fast tests one by one; those with real processes last, all to one worker,
    since each starts several JVMs."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "integration" if file.startswith("tests/integration/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesThenIntegration:
    return FilesThenIntegration(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What fails fast fails first."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/integration/"))
