"""Measures what the daemons of a cluster hold, and how long its pages take."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from pathlib import Path
from statistics import median

import aiohttp
import psutil

from campaign.processes.cluster import Member, RealCluster
from campaign.processes.places import LOOPBACK_ADDRESS
from campaign.soak.drift import Sample

_PAGES = {"overview page": "/", "list of jobs": "/v1/jobs/overview", "task managers": "/v1/taskmanagers"}
_LOOKS = 3
_SECONDS = 10.0
_MIB = 1024**2


class Sampler:
    """``take`` measures everything once."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._headers = {"Authorization": f"Bearer {cluster.token}"}

    async def take(self, at: float, leader: Member | None) -> list[Sample]:
        """Return the samples of one moment. ``leader``: None if no JobManager leads now."""
        found = []
        for member in (*self._cluster.job_managers, *self._cluster.task_managers):
            subject = "task manager" if member.kind == "taskmanager" else "leader" if member is leader else "standby"
            with contextlib.suppress(psutil.Error, AssertionError):  # it is being killed
                found.append(_process(at, subject, psutil.Process(member.pid)))
        values = await asyncio.to_thread(self._files)
        values |= await self._zookeeper()
        if leader is not None:
            values |= await self._pages(leader)
        return [*found, Sample(at, "cluster", 0.0, values)]

    def _files(self) -> dict[str, float]:
        """Count the files of the cluster itself, not what jobs write."""
        found: dict[str, float] = {}
        state = self._cluster.state
        places = {"storage": state, "nodes": self._cluster.directory / "nodes"}
        for name, place in places.items():
            count, size = _measure(place)
            found |= {f"{name}: files": count, f"{name}: bytes MiB": size / _MIB}
        _, size = _measure(self._cluster.directory / "zookeeper")
        return {**found, "database: bytes MiB": size / _MIB}

    async def _zookeeper(self) -> dict[str, float]:
        server = self._cluster.zookeepers[0].server
        assert server is not None
        try:
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_connection(LOOPBACK_ADDRESS, server.client_port)
                try:
                    writer.write(b"srvr")
                    status = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return {}
        nodes = re.search(rb"Node count: (\d+)", status)
        return {"ZooKeeper: nodes": float(nodes[1])} if nodes else {}

    async def _pages(self, leader: Member) -> dict[str, float]:
        base = f"http://{LOOPBACK_ADDRESS}:{leader.settings['rest.port']}"
        found: dict[str, float] = {}
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session:
            for name, path in _PAGES.items():
                took = []
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    for _ in range(_LOOKS):
                        began = time.perf_counter()
                        async with session.get(base + path, allow_redirects=False) as reply:
                            await reply.read()
                            if reply.status != 200:
                                break
                        took.append((time.perf_counter() - began) * 1e3)
                if len(took) == _LOOKS:
                    found[f"{name}: milliseconds"] = median(took)
        return found


def _process(at: float, subject: str, process: psutil.Process) -> Sample:
    with process.oneshot():
        values = {
            "resident: memory MiB": process.memory_info().rss / _MIB,
            "open: descriptors": float(process.num_fds()),
            "running: threads": float(process.num_threads()),
        }
        return Sample(at, subject, time.time() - process.create_time(), values)


def _measure(place: Path) -> tuple[float, float]:
    """Return the number of files below a directory, and their bytes on the disk."""
    count, size = 0, 0
    for folder, _, names in os.walk(place):
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(folder, name).lstat().st_blocks * 512
                count += 1
    return float(count), float(size)
