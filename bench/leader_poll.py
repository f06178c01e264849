"""Asking JobManagers again and again until one of them leads and knows all jobs to be as they should be.

A standby's answer is where the leader is. It is not followed: a leader that has just fallen silent would not answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from emberkeep.base.tls.contexts import client_context
from emberkeep.client.endpoint import Endpoint
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.protocol.rest_cluster import ClusterOverview

LIMIT_SECONDS = 120.0  # for anything to happen
_POLL = 0.02
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True)
class Takeover:
    """Seconds from the kill until a new leader answered anything, and until it knew all jobs as they are."""

    answered: float
    known: float


async def until_known(
    endpoints: Sequence[Endpoint], status: JobStatus, jobs: int, begin: float, limit: float = LIMIT_SECONDS
) -> Takeover:
    """Ask each in turn until ``jobs`` are in ``status``; ``begin``: when the leader was killed (``perf_counter``).

    Raises SystemExit after ``limit`` seconds.
    """
    answered = 0.0
    proven = [(endpoint, client_context(endpoint.ca) if endpoint.ca else True) for endpoint in endpoints]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS)) as session:
        while time.perf_counter() - begin < limit:
            for endpoint, tls in proven:
                overview = await _overview(session, endpoint, tls)
                if overview is None:
                    continue
                answered = answered or time.perf_counter() - begin
                if overview.emberkeep.jobs_by_status.get(status) == jobs:
                    return Takeover(answered, time.perf_counter() - begin)
                break
            await asyncio.sleep(_POLL)
    raise SystemExit(f"not all jobs were {status.value} after {limit:g} s: a bug, so there is no measurement")


async def _overview(
    session: aiohttp.ClientSession, endpoint: Endpoint, tls: ssl.SSLContext | bool
) -> ClusterOverview | None:
    """None from whoever does not lead, or does not answer."""
    url, headers = f"{endpoint.url}{API_PREFIX}/overview", {"Authorization": f"Bearer {endpoint.token}"}
    try:
        async with session.get(url, headers=headers, allow_redirects=False, ssl=tls) as answer:
            if answer.status != 200:
                return None
            return msgspec.json.decode(await answer.read(), type=ClusterOverview)
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return None
