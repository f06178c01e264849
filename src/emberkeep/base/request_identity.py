"""The key under which an HTTP request carries the identity of its caller, once the access checks have found it."""

from __future__ import annotations

from aiohttp import web

from emberkeep.base.identity import Identity

REQUEST_IDENTITY = web.RequestKey("emberkeep.identity", Identity)
