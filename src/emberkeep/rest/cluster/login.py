"""Links that log a browser in to the web page."""

from __future__ import annotations

import msgspec

from emberkeep.base.identity import Role
from emberkeep.protocol.rest_login import LoginLink
from emberkeep.rest.serving.routing import CheckedRequest, Route


async def new_login_link(call: CheckedRequest) -> msgspec.Struct:
    links = call.api.login_links
    return LoginLink(
        path=links.new_path(call.identity), job_manager=call.api.gateway.address(), valid_for=links.valid_for_ms
    )


ROUTES = (
    Route(
        "POST",
        "/login-links",
        new_login_link,
        "Create a link that logs a browser in and works only once",
        "Cluster",
        role=Role.VIEWER,
        shared=True,
        status=201,
        reply=LoginLink,
        doc="The session that begins with it can use the pages and their buttons. It cannot use this API's other "
        "resources or create further links.",
    ),
)
