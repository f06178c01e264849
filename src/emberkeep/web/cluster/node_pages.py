"""The pages of nodes and task managers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from aiohttp import web

from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId, parse_task_manager_id
from emberkeep.chronicle.occurrence import Occurrence
from emberkeep.jobmanager.views.cluster import JobManagerGateway, TaskManagerView
from emberkeep.web.cluster.tabs import node_tab
from emberkeep.web.event_texts import EventTexts
from emberkeep.web.health import node_health
from emberkeep.web.node_filter import (
    NodeFilter,
    listed,
    node_standing,
    node_words,
    parse_standing,
    task_manager_standing,
    task_manager_words,
)
from emberkeep.web.nodes import blocked_task_managers, job_ids_on, jobs_on, leaving, node_line, node_lines, progress
from emberkeep.web.paging import parse_page
from emberkeep.web.render import Render

_PLOTTED_ON_NODE = 8  # task managers whose usage the page of a node adds up


class NodePages:
    """They show the whole cluster, so identities with a namespace have no access to them."""

    def __init__(self, render: Render, gateway: JobManagerGateway, events: EventTexts) -> None:
        self._render = render
        self._gateway = gateway
        self._events = events

    async def task_managers(self, request: web.Request) -> web.Response:
        return self._render(
            request,
            "task_managers.html",
            "taskmanagers",
            listed=listed(
                *_wanted("/taskmanagers", request),
                await self._gateway.task_managers(),
                task_manager_words,
                task_manager_standing,
            ),
            others=self._gateway.strangers(),
        )

    async def task_manager(self, request: web.Request) -> web.Response:
        identifier = parse_task_manager_id(request.match_info["taskmanagerid"])
        view = await self._gateway.task_manager(identifier)
        entries = {entry.id: entry for entry in blocked_task_managers(await self._gateway.blocklist())}
        names = await self._names([view])
        events, problem = await _if_readable(self._events.of_task_manager(identifier, view.info.node_id))
        return self._render(
            request,
            "task_manager.html",
            "taskmanagers",
            view=view,
            tab=node_tab(task_manager_standing(view), [view]),
            names=names,
            events=events,
            problem=problem,
            problems=node_health([view]),
            entry=entries.get(identifier),
            progress=progress([view]),
            leaving=leaving([view]),
        )

    async def nodes(self, request: web.Request) -> web.Response:
        blocklist = await self._gateway.blocklist()
        lines = node_lines(blocklist, await self._gateway.task_managers())
        shown = listed(*_wanted("/nodes", request), lines, node_words, node_standing)
        return self._render(request, "nodes.html", "nodes", listed=shown, blocked=blocked_task_managers(blocklist))

    async def node(self, request: web.Request) -> web.Response:
        node, blocklist = request.match_info["nodeid"], await self._gateway.blocklist()
        there = [view for view in await self._gateway.task_managers() if view.info.node_id == node]
        events, problem = await _if_readable(self._events.of_node(node, (view.info.id for view in there)))
        blocked = {entry.id: entry for entry in blocked_task_managers(blocklist)}
        line = node_line(node, blocklist, there)
        return self._render(
            request,
            "node.html",
            "nodes",
            node=line,
            tab=node_tab(node_standing(line), there),
            there=there,
            problems=node_health(there),
            plotted=[view.info.id for view in there[:_PLOTTED_ON_NODE]],
            blocked=blocked,
            jobs=jobs_on(there, await self._names(there)),
            events=events,
            problem=problem,
        )

    async def _names(self, there: Sequence[TaskManagerView]) -> dict[JobId, str]:
        """Return the names of the jobs on these task managers, as far as the jobs are known."""
        return {job.job_id: job.name for job in await self._gateway.jobs_of(sorted(job_ids_on(there)))}


def _wanted(path: str, request: web.Request) -> tuple[NodeFilter, int]:
    """Return the filter and the number of the page in an address. Raises InvalidInput."""
    query = request.query
    wanted = NodeFilter(path, parse_standing(query.get("state", "")), query.get("text", "")[:200])
    return wanted, parse_page(query.get("page", "1"))


async def _if_readable(events: Awaitable[tuple[Occurrence, ...]]) -> tuple[tuple[Occurrence, ...], str]:
    """Return the events, and ""; or none, and why they cannot be read: a page is useful without events, too."""
    try:
        return await events, ""
    except Unavailable as error:
        return (), error.message
