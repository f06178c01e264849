"""The fuzzer reaches a real server, and what it gets is documented."""

from __future__ import annotations

import random
from pathlib import Path

import aiohttp
import msgspec

from campaign.load.fuzzer import Fuzzer
from campaign.load.replies import documented, undocumented
from campaign.processes.calls import Answered
from emberkeep.rest.openapi import document
from emberkeep.rest.table import ROUTES
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.server import TOKEN, running_site

REQUESTS = 150
OPERATIONS = [(route.method, f"/v1{route.path}") for route in ROUTES]
EXAMPLE = msgspec.json.encode({"name": "a job", "artefacts": [{"name": "a.py", "size": 3}], "spark_conf": {"a": "b"}})


async def test_strange_requests_get_documented_replies(tmp_path: Path) -> None:
    replies: list[Answered] = []
    async with running_site(tmp_path, FakeGateway()) as site:
        fuzzer = Fuzzer([site.base], TOKEN, OPERATIONS, EXAMPLE, random.Random(11), replies.append)
        async with aiohttp.ClientSession() as session:
            for _ in range(REQUESTS):
                await fuzzer.send(session)
    assert sum(fuzzer.counts.values()) == REQUESTS
    assert fuzzer.counts["400"]
    assert fuzzer.counts["404"]
    assert undocumented(replies, documented(document(ROUTES)["paths"])) == []


def test_unknown_outcomes_of_submissions_and_cancellations_are_documented() -> None:
    """The leader may die, or its job store fall silent, after the request was sent to be recorded."""
    known = documented(document(ROUTES)["paths"])
    replies = [
        Answered(method, path, 504, 0.0, 1.0) for method, path in (("POST", "/v1/jobs"), ("PATCH", "/v1/jobs/a"))
    ]
    assert undocumented(replies, known) == []
