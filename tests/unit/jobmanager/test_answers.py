"""Replies that nobody fetches any more are no errors to be logged."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.jobmanager.answers import Answers
from tests.unit.jobmanager.cluster import in_virtual_time


def test_every_caller_that_waits_gets_the_error_when_the_actor_stops() -> None:
    async def scenario() -> None:
        answers = Answers()
        given, waiting = answers.new(), answers.new()
        given.set_result(7)
        answers.give_up(RetryLater("the JobManager is stopping"))
        assert await given == 7
        with pytest.raises(RetryLater, match="is stopping"):
            await waiting

    in_virtual_time(scenario)


def test_a_reply_whose_caller_is_gone_is_not_logged() -> None:
    async def scenario() -> None:
        logged: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        answers = Answers()
        failed, cancelled = answers.new(), answers.new()
        cancelled.cancel()
        answers.give_up(RetryLater("the JobManager is stopping"))
        await asyncio.sleep(0)
        del failed, cancelled
        gc.collect()
        await asyncio.sleep(0)
        assert logged == []

    in_virtual_time(scenario)
