"""What makes a page of a template: given to the modules that have pages."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web


class Render(Protocol):
    def __call__(
        self, request: web.Request, template: str, section: str, code: HTTPStatus = HTTPStatus.OK, **values: Any
    ) -> web.Response:
        """Return the page that a template makes of ``values``."""
