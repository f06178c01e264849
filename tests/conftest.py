"""What every test gets."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Emberkeep runs on asyncio; no second event loop is supported."""
    return "asyncio"
