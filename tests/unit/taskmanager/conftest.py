"""The bench of a task manager, for all who tell stories on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.support.simulator.virtual_loop import VirtualLoop
from tests.unit.taskmanager.agent_bench import Bench


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]]:
    """Plays a story on a bench whose task manager has registered, and checks that it was alive to the end."""
    loop = VirtualLoop()

    def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench(loop)
            await bench.start()
            await story(bench)
            bench.service.executor.table.check_invariants()
            assert bench.running is not None
            assert not bench.running.done(), "the task manager has died"

        loop.run_until_complete(main())

    yield play
    assert loop.end_all() == []
    loop.close()
