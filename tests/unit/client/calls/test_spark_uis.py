"""Pages of Spark UIs over the REST API."""

from __future__ import annotations

from typing import cast

import msgspec
from multidict import CIMultiDict

from emberkeep.base.ids import JobId
from emberkeep.client.calls.spark_uis import SparkUiCalls
from emberkeep.client.http_calls import HttpCalls, HttpReply, Request
from emberkeep.protocol.rest_spark_ui import SparkUiPage

PAGE = SparkUiPage(status=200, content_type="text/html", location="", body=b"jobs")


class Recorded:
    """Answers each call with a page, and keeps the request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def call(self, request: Request) -> HttpReply:
        self.requests.append(request)
        return HttpReply(200, CIMultiDict(), msgspec.json.encode(PAGE))


async def test_the_first_page_of_an_ended_attempt_may_take_a_minute() -> None:
    http = Recorded()
    assert await SparkUiCalls(cast(HttpCalls, http)).page(JobId("a" * 32), "/jobs/", attempt=2) == PAGE
    (request,) = http.requests
    assert (request.limits.total or 0) > 60
    assert dict(request.parameters) == {"path": "/jobs/", "attempt": "2"}
