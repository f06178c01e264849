"""The files of a job store in ZooKeeper: graphs, and results that are too large for a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emberkeep.adapters.job_store.graph_files import GraphFiles
from emberkeep.adapters.job_store.result_files import ResultFiles
from emberkeep.adapters.zookeeper.nodes import StoreNodes
from emberkeep.base.ids import JobId


class StoreFiles:
    """Files in one directory. Their names contain the epoch of the leader that wrote them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.graphs = GraphFiles(directory)
        self.results = ResultFiles(directory, 0)

    def begin(self, epoch: int) -> None:
        """Write files of this epoch from now on."""
        self.graphs = GraphFiles(self._directory, epoch)
        self.results = ResultFiles(self._directory, epoch)

    async def sweep_unfinished(self) -> None:
        """Delete files that leaders of earlier epochs left partially written."""
        await asyncio.to_thread(self.graphs.sweep_unfinished)
        await asyncio.to_thread(self.results.sweep_unfinished)

    async def discard_graph(self, location: str) -> None:
        await asyncio.to_thread(self.graphs.discard_file, location)

    async def discard_result(self, location: str) -> None:
        await asyncio.to_thread(self.results.discard, location)


class LeftoverFiles:
    """Files of earlier leaders to which no node leads."""

    def __init__(self, nodes: StoreNodes, files: StoreFiles) -> None:
        self._nodes = nodes
        self._files = files

    async def graphs(self) -> dict[JobId, list[str]]:
        """Return the graph files of jobs that have no handle, by job."""
        self._nodes.epoch.check_taken()
        layout = self._nodes.layout
        jobs, damaged = await asyncio.gather(*map(self._nodes.session.children, (layout.jobs, layout.damaged)))
        return await asyncio.to_thread(self._files.graphs.without_handle, {*jobs, *damaged})

    async def remove_graph(self, job_id: JobId) -> None:
        """Delete the graph files of a job that has no handle. Raises Conflict if another JobManager is the leader."""
        await self._nodes.epoch.confirm()
        for name in (await self.graphs()).get(job_id, ()):
            await self._files.discard_graph(name)

    async def results(self) -> dict[JobId, list[str]]:
        """Return the result files of jobs that have no node, by job."""
        self._nodes.epoch.check_taken()
        layout = self._nodes.layout
        nodes = await asyncio.gather(*map(self._nodes.session.children, (layout.jobs, layout.results, layout.damaged)))
        return await asyncio.to_thread(self._files.results.without_node, {name for names in nodes for name in names})

    async def remove_result(self, job_id: JobId) -> None:
        """Delete the result files of a job that has no znode. Raises Conflict if another JobManager is the leader."""
        await self._nodes.epoch.confirm()
        for name in (await self.results()).get(job_id, ()):
            await self._files.discard_result(name)
