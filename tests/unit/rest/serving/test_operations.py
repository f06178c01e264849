"""Operations that a client starts and polls."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import Absent
from emberkeep.rest.serving import operations
from emberkeep.rest.serving.operations import Operations

pytestmark = pytest.mark.anyio


async def test_a_running_operation_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_KEPT", 2)
    known, release = Operations(), asyncio.Event()

    async def waits() -> tuple[str, ...]:
        await release.wait()
        return ("left",)

    async def ends() -> tuple[str, ...]:
        return ()

    known.start("slow", waits())
    for name in ("a", "b", "c"):
        known.start(name, ends())
        await asyncio.sleep(0)

    assert not known.find("slow").done
    with pytest.raises(Absent):
        known.find("a")
    assert known.find("c").done
    release.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert known.find("slow").left == ("left",)
    await known.close()
