"""The login page for a browser without a session: how to log in, and a token field. Shows nothing about the cluster."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import hdrs, web

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Log in · Emberkeep</title>
  <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/emberkeep.css">
</head>
<body>
<header class="top">
  <a class="brand" href="/"><img src="/static/icon.svg" alt="" width="24" height="24">Emberkeep</a>
</header>
<main id="main">
<h1>Log in</h1>
<p>{reason} <code>emberkeep cluster status</code> prints a link that logs you in. Or enter the token. It is in the file
<code>security.token-file</code>, by default <code>token</code> below the state directory.</p>
<form method="get" action="/login">
  <label>Token <input type="password" name="token" autocomplete="off" required></label>
  <button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""
MISSING = "This browser is not logged in."
WRONG = "This token is not valid. It may belong to an earlier cluster."


def wants_page(request: web.Request) -> bool:
    """True if a browser asks for a page. A problem document would be of no use to it."""
    return request.method == hdrs.METH_GET and "text/html" in request.headers.get(hdrs.ACCEPT, "")


def login_page(reason: str) -> web.Response:
    """Return the page with status 401. ``reason`` is MISSING or WRONG."""
    return web.Response(
        status=HTTPStatus.UNAUTHORIZED, text=_PAGE.format(reason=reason), content_type="text/html", charset="utf-8"
    )
