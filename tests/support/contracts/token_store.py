"""What every store of named tokens does. A subclass has a fixture ``stores``, which opens the same store again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from emberkeep.base.identity import Role
from emberkeep.identities.model import NamedToken, NamedTokens
from emberkeep.identities.ports import TokenStore

Stores = Callable[[], AbstractAsyncContextManager[TokenStore]]

TOKENS = NamedTokens(
    tokens=(
        NamedToken(id="1", name="ci", role=Role.SUBMITTER, sha256="ab", created_ms=1, expires_ms=2, namespace="team"),
        NamedToken(id="2", name="ana", role=Role.ADMIN, sha256="cd", created_ms=3, expires_ms=4, revoked_ms=5),
    )
)


@pytest.mark.anyio
@pytest.mark.req("SEC-11")
class TokenStoreContract:
    async def test_a_new_store_has_none(self, stores: Stores) -> None:
        async with stores() as store:
            assert await store.read() == NamedTokens()

    async def test_the_next_leader_reads_what_was_recorded_last(self, stores: Stores) -> None:
        async with stores() as store:
            await store.record(TOKENS)
            await store.record(NamedTokens(tokens=TOKENS.tokens[:1]))
            await store.record(TOKENS)
        async with stores() as store:
            assert await store.read() == TOKENS
