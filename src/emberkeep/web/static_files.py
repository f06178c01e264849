"""Style sheet, scripts and icon: a fixed set of files in this package, read once at start."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

_FOLDER = resources.files("emberkeep.web").joinpath("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True)
class _File:
    body: bytes
    content_type: str
    etag: str


def static_route() -> web.RouteDef:
    """Return the route ``GET /static/{name}``. The route may be public: the files contain no secrets."""
    files = {name: _read(name) for name in sorted(entry.name for entry in _FOLDER.iterdir()) if _suffix(name) in _TYPES}

    async def serve(request: web.Request) -> web.Response:
        file = files.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "no-cache", "ETag": f'"{file.etag}"'}
        if any(tag.value == file.etag for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, content_type=file.content_type, charset="utf-8", headers=headers)

    return web.get("/static/{name}", serve)


def _read(name: str) -> _File:
    body = _FOLDER.joinpath(name).read_bytes()
    return _File(body, _TYPES[_suffix(name)], hashlib.sha256(body).hexdigest()[:16])


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
