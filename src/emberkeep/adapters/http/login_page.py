"""Pages that need no template of the console: how to log in, with a token field, and why something cannot be shown.

Those about the login say nothing about the cluster. The others repeat what the REST API says to the same caller.
"""

from __future__ import annotations

import html
import re
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.base.decoding import from_json
from emberkeep.protocol.rest import PROBLEM_MEDIA_TYPE, Problem

LOGIN_PATH = "/login"
LOGOUT_PATH = "/logout"
CONTINUE_PATH = "/login/continue"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title} · Emberkeep</title>
  <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/emberkeep.css">
  {script}
</head>
<body>
<header class="top">
  <a class="brand" href="/"><img src="/static/icon.svg" alt="" width="24" height="24">Emberkeep</a>
</header>
<main id="main">
<h1>{title}</h1>
{content}
</main>
</body>
</html>
"""
_ASKING = """\
<p>{reason} <code>emberkeep cluster status</code> prints a link that logs you in. Or enter the token. It is in the file
<code>security.token-file</code>, by default <code>token</code> below the state directory.</p>
<form method="post" action="/login" class="filter fields">
  <label>Token <input type="password" name="token" autocomplete="off" required></label>
  <button type="submit">Log in</button>
</form>"""
_SENDING = """\
<form method="post" action="/login" id="code">
  <input type="hidden" name="code" value="{code}">
  <button type="submit">Log in</button>
</form>"""
# A page of this server asks for the next one: browsers send no strict cookie when another server's page does.
_CONTINUING = """\
<p>Another JobManager leads now. <a href="{page}">Continue</a></p>"""
_REFUSING = """\
<p>{detail}</p>{hint}
<p><a href="/">Overview</a></p>"""
_HINT = """
<p class="id">{hint}</p>"""
_KEPT_HEADERS = (hdrs.ALLOW, hdrs.RETRY_AFTER)
_REFRESH = '<meta http-equiv="refresh" content="0; url={page}">'
_SCRIPT = '<script type="module" src="/static/login.js"></script>'
_CODE = re.compile("[A-Za-z0-9_-]{20,100}")

MISSING = "This browser is not logged in."
ENDED = "Your session has ended."
WRONG = "This token is not valid. It may belong to an earlier cluster."
CONTINUED = "Another JobManager leads now, and this browser's session does not continue there."
TOO_MANY = "Too many wrong tokens came from your address: wait a minute."
USED = "This link was used already, has expired, or comes from a JobManager that has ended."


def accepts_page(request: web.Request) -> bool:
    """True if the client is a browser that asks for a page, and could not use a problem document."""
    return "text/html" in request.headers.get(hdrs.ACCEPT, "")


def login_page(reason: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> web.Response:
    """Return the page. ``reason`` is one of the constants above."""
    return _response(_PAGE.format(title="Log in", script="", content=_ASKING.format(reason=reason)), status)


def code_page(code: str) -> web.Response:
    """Return the page of a login link, which sends the code when a person opens it.

    A program that only looks at the link, such as a chat's preview, does not use it up.
    """
    if not _CODE.fullmatch(code):
        return login_page(USED)
    return _response(_PAGE.format(title="Log in", script=_SCRIPT, content=_SENDING.format(code=code)), HTTPStatus.OK)


def continue_page(page: str) -> web.Response:
    """Return the page that leads on to ``page``, a path of this server without characters that HTML gives a meaning."""
    refresh, content = _REFRESH.format(page=page), _CONTINUING.format(page=page)
    return _response(_PAGE.format(title="Continue", script=refresh, content=content), HTTPStatus.OK)


def pages_about_problems() -> Middleware:
    """Return middleware that gives a browser that asks for a page one that says why it gets no other.

    It runs before those that read the problem documents of replies. Without a login there is the login page.
    """

    @web.middleware
    async def show(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        is_page = request.method == hdrs.METH_GET and accepts_page(request)
        if not is_page or answer.content_type != PROBLEM_MEDIA_TYPE or answer.status == HTTPStatus.UNAUTHORIZED:
            return answer
        if not isinstance(answer, web.Response) or not isinstance(answer.body, bytes):
            return answer
        page = _problem_page(from_json(answer.body, Problem))
        page.headers.update({name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers})
        return page

    return show


def _problem_page(problem: Problem) -> web.Response:
    hint = _HINT.format(hint=html.escape(problem.hint)) if problem.hint else ""
    content = _REFUSING.format(detail=html.escape(problem.detail), hint=hint)
    title = "This page cannot be shown"
    return _response(_PAGE.format(title=title, script="", content=content), HTTPStatus(problem.status))


def _response(text: str, status: HTTPStatus) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")
