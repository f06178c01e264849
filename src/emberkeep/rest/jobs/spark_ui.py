"""Pages of a driver's Spark UI.

A page comes as a value in JSON, which no browser shows: at the console's own origin, a page that a job's JVM has made
could act with the session of whoever opens it. ``emberkeep spark-ui`` serves the pages at an origin of their own, and
so does the JobManager's port for Spark UIs, to which a link leads.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.identity import Role
from emberkeep.protocol.rest_spark_ui import SparkUiLink, SparkUiPage
from emberkeep.rest.serving.routing import CheckedRequest, Route
from emberkeep.rest.serving.spark_ui_reading import read_spark_ui, shown_attempt

_Attempt = Annotated[int, Meta(ge=0, le=999_999_999, description="Number of the attempt. 0: the newest one.")]


class ReadPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a page."""

    path: Annotated[
        str, Meta(pattern="^/", max_length=8192, description="Path of the page, from `/` on, with its own query.")
    ] = "/"
    attempt: _Attempt = 0


class LinkQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a link."""

    attempt: _Attempt = 0


async def read_page(call: CheckedRequest) -> msgspec.Struct:
    query: ReadPage = call.query
    view = shown_attempt(await call.api.gateway.job(call.path["jobid"]), query.attempt)
    page = await read_spark_ui(call.api.gateway, call.api.spark_uis, view, query.path)
    return SparkUiPage(status=page.status, content_type=page.content_type, location=page.location, body=page.body)


async def new_link(call: CheckedRequest) -> msgspec.Struct:
    query: LinkQuery = call.query
    view = shown_attempt(await call.api.gateway.job(call.path["jobid"]), query.attempt)
    links = call.api.spark_ui_links
    return SparkUiLink(url=links.new(call.request, view), attempt=view.attempt, valid_for=links.valid_for_ms)


ROUTES = (
    Route(
        "GET",
        "/jobs/{jobid}/spark-ui",
        read_page,
        "A page of the Spark UI of a job's driver",
        "Jobs",
        role=Role.VIEWER,
        query=ReadPage,
        reply=SparkUiPage,
        problems=(404, 409, 429, 503),
        doc="`body` is in Base64. `emberkeep spark-ui` shows the pages in a browser. The Spark UI is off if the "
        "job is submitted with `--conf spark.ui.enabled=false`.",
    ),
    Route(
        "POST",
        "/jobs/{jobid}/spark-ui-links",
        new_link,
        "Create a link to the Spark UI of an attempt, for one browser",
        "Jobs",
        role=Role.VIEWER,
        status=201,
        query=LinkQuery,
        reply=SparkUiLink,
        problems=(404,),
        doc="The link leads to a port that serves nothing but Spark UIs (`rest.spark-ui.port`), on the host name of "
        "this request. It ends with the login of the caller.",
    ),
)
