"""Values of arguments that a shell completes: ids and names that the cluster knows.

The completion script calls ``emberkeep __complete`` with the words so far, which calls the completer of the argument
under the cursor. The user waits for the answer in the middle of a command line. So a cluster that does not answer soon
has nothing to offer, and no problem is reported.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from emberkeep.cli.cluster_options import ClusterOptions
    from emberkeep.client.rest_client import RestClient

COMPLETE: Final = "__complete"  # the command that the script calls
_ANSWER_SECONDS: Final = 2.0
_END_SECONDS: Final = 4.0  # after which this process ends, whatever it waits for, such as a name server
_MOST: Final = 200  # candidates
_SHORT_ID: Final = 8

Candidates = list[tuple[str, str]]
"""Values, each with a description that some shells show."""


def end_soon() -> None:
    """Bound the time of this process, which only completes a word. It ends as if there were no candidates."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        sys.stdout.flush()
        os._exit(0)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _END_SECONDS)
    # At its end, Python takes the handler back first: a signal after that would kill this process.
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.0)


def jobs(context: CompletionContext) -> Candidates:
    """Return the ids and names of jobs, those that run first."""
    wanted = context.incomplete

    async def read(client: RestClient) -> Candidates:
        found = sorted(await client.jobs(), key=lambda job: (job.state.is_globally_terminal, -job.start_time))
        ids = [
            (job.jid if len(wanted) > _SHORT_ID else job.jid[:_SHORT_ID], f"{job.name}, {job.state.value}")
            for job in found
            if job.jid.startswith(wanted)
        ]
        names = {job.name: job.state.value for job in reversed(found) if job.name.startswith(wanted)}
        return [*ids[: _MOST // 2], *names.items()]

    return _asked(context, read)


def nodes(context: CompletionContext) -> Candidates:
    """Return the ids of nodes; with ``--task-manager``, those of task managers."""
    switch = context.get("--task-manager")
    return task_managers(context) if switch is not None and switch.provided else _asked(context, _nodes)


async def _nodes(client: RestClient) -> Candidates:
    found: dict[str, str] = {}
    for each in await client.task_managers():
        found[each.emberkeep.node_id] = f"task manager {each.id}"
    for node in (await client.blocklist()).blocked_nodes:
        found[node] = "blocked"
    return list(found.items())


def task_managers(context: CompletionContext) -> Candidates:
    """Return the ids of registered task managers."""

    async def read(client: RestClient) -> Candidates:
        return [(each.id, f"node {each.emberkeep.node_id}") for each in await client.task_managers()]

    return _asked(context, read)


def savepoints(context: CompletionContext) -> Candidates:
    """Return the paths of savepoints, newest first."""

    async def read(client: RestClient) -> Candidates:
        found = (await client.savepoints.newest()).savepoints
        return [(each.path, f"{each.job_name}, {each.job_status.value}") for each in found]

    return _asked(context, read)


def first_job(context: CompletionContext) -> Candidates:
    """Return jobs for the first of several words."""
    return [] if context.index else jobs(context)


def first_savepoint(context: CompletionContext) -> Candidates:
    """Return savepoints for the first of several words."""
    return [] if context.index else savepoints(context)


def _asked(context: CompletionContext, read: Callable[[RestClient], Awaitable[Candidates]]) -> Candidates:
    """Return what ``read`` finds at the cluster that the words so far name; nothing if it does not answer soon."""
    from emberkeep.base.errors import EmberkeepError
    from emberkeep.client.rest_client import RestClient

    async def ask() -> Candidates:
        async with asyncio.timeout(_ANSWER_SECONDS), RestClient(_cluster(context).require(), patience=0) as client:
            return await read(client)

    found: Candidates = []
    with contextlib.suppress(EmberkeepError, OSError):  # TimeoutError is an OSError
        found = asyncio.run(ask())
    wanted = context.incomplete
    matching = [(value, text) for value, text in found if value.startswith(wanted) and _is_one_word(value)]
    return matching[:_MOST]


def _is_one_word(value: str) -> bool:
    """True if a shell can insert the value, and the command takes it for no option."""
    return value.isprintable() and not value.startswith("-") and value != ""


def _cluster(context: CompletionContext) -> ClusterOptions:
    from emberkeep.cli.cluster_options import ClusterOptions

    def given(option: str) -> tuple[str, ...]:
        value = context.get(option)
        return () if value is None else value.raw_tokens

    def last(option: str) -> str | None:
        return next(reversed(given(option)), None)

    return ClusterOptions(
        config=last("--config"), state_dir=last("--state-dir"), definitions=given("-D"), url=last("--url")
    )
