"""Named tokens in the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from emberkeep.adapters.job_store.embedded import EmbeddedJobStore
from emberkeep.base.errors import Damaged
from emberkeep.identities.model import NamedTokens
from emberkeep.identities.ports import TokenStore
from tests.support.contracts.token_store import TOKENS, Stores, TokenStoreContract


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    @asynccontextmanager
    async def opened() -> AsyncIterator[TokenStore]:
        store = EmbeddedJobStore(tmp_path / "jobs.sqlite", tmp_path / "graphs")
        await store.open()
        yield store.tokens
        await store.close()

    return opened


class TestEmbedded(TokenStoreContract):
    async def test_a_damaged_record_is_neither_believed_nor_replaced(self, stores: Stores, tmp_path: Path) -> None:
        async with stores() as store:
            await store.record(TOKENS)
        with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as connection, connection:
            connection.execute("UPDATE tokens SET list = substr(list, 1, length(list) - 5)")
        async with stores() as store:
            for attempt in (store.read, lambda: store.record(NamedTokens())):
                with pytest.raises(Damaged, match="tokens"):
                    await attempt()

    async def test_a_store_of_the_release_before_gets_the_table(self, stores: Stores, tmp_path: Path) -> None:
        async with stores():
            pass
        with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as connection, connection:
            connection.execute("DROP TABLE tokens")
        async with stores() as store:
            assert await store.read() == NamedTokens()
