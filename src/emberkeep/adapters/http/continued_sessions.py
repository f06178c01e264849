"""Lets the session of a browser go on when another JobManager becomes the leader.

The leader's replies to a session carry a pass and the addresses of the other JobManagers. When the leader is gone, the
open page asks the others which of them leads, and sends the pass to that one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus

from aiohttp import hdrs, web

from emberkeep.adapters.http.login_page import CONTINUE_PATH, CONTINUED, continue_page, login_page
from emberkeep.adapters.http.security import CONTENT_SECURITY_POLICY
from emberkeep.adapters.http.sessions import WebSessions, session_of
from emberkeep.adapters.http.web_login import begin_session, read_form
from emberkeep.base.identity import Identity
from emberkeep.base.request_context import REQUEST_LOGIN, Login
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.identities.session_passes import SessionPass, SessionPasses

PASS_HEADER = "Emberkeep-Session-Pass"  # noqa: S105 - the name of a header
OTHERS_HEADER = "Emberkeep-Job-Managers"
EPOCH_HEADER = "Emberkeep-Leader-Epoch"
_MOST_USED = 4096  # passes that are remembered as used
_PAGE = re.compile(r"/(?:[A-Za-z0-9._~/?&=%:,+-]{0,2000})")  # a path of this server, with its query


class ContinuedSessions:
    """Writes the passes of this leader, and takes those of earlier ones.

    ``epoch`` returns this leader's epoch; 0 before it leads. ``others`` returns the addresses ("host:port") of all
    known JobManagers, which may include this one.
    """

    def __init__(
        self,
        passes: SessionPasses,
        sessions: WebSessions,
        epoch: Callable[[], int],
        now_ms: Callable[[], int],
        others: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._passes = passes
        self._sessions = sessions
        self._epoch = epoch
        self._now_ms = now_ms
        self._others = others
        self._used: dict[str, int] = {}  # ids of passes, and when each expires

    def attach(self, app: web.Application) -> None:
        """Add a pass to what sessions receive from ``app``, and let its pages reach the other JobManagers."""
        app.on_response_prepare.append(self._add)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes that pages of other JobManagers use. They must be reachable without a session."""
        return [web.get(CONTINUE_PATH, self._tell), web.post(CONTINUE_PATH, self._continue)]

    async def _add(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.get(REQUEST_LOGIN) is not Login.SESSION or request.method != hdrs.METH_GET:
            return
        session_id = session_of(request)
        seconds = 0.0 if session_id is None else self._sessions.seconds_left(session_id)
        if seconds > 0:
            identity: Identity = request[REQUEST_IDENTITY]
            response.headers[PASS_HEADER] = self._pass_of(identity, request.headers[hdrs.HOST], seconds)
        response.headers[EPOCH_HEADER] = str(self._epoch())
        own = request.headers[hdrs.HOST]
        others = [f"{request.scheme}://{address}" for address in self._others() if address != own]
        response.headers[OTHERS_HEADER] = ", ".join(others)
        if others and response.content_type == "text/html":
            response.headers["Content-Security-Policy"] = _policy_with(others)

    def _pass_of(self, identity: Identity, host: str, seconds: float) -> str:
        now_ms = self._now_ms()
        return self._passes.written(
            SessionPass(
                id=secrets.token_urlsafe(16),
                host=host,
                epoch=self._epoch(),
                issued_ms=now_ms,
                until_ms=now_ms + int(seconds * 1000),
                name=identity.name,
                role=identity.role,
                namespace=identity.namespace,
                expires_ms=identity.expires_ms,
            )
        )

    async def _tell(self, request: web.Request) -> web.Response:
        """Tell a page whether this JobManager took the lead after epoch ``after``: 204 if it did, else 409.

        Otherwise the session has just ended. Only pages of JobManagers can read the reply.
        """
        after = request.query.get("after", "")
        is_later = re.fullmatch("[0-9]{1,18}", after) is not None and self._epoch() > int(after)
        answer = web.Response(status=HTTPStatus.NO_CONTENT if is_later else HTTPStatus.CONFLICT)
        origin = request.headers.get(hdrs.ORIGIN, "")
        if origin in {f"{request.scheme}://{address}" for address in self._others()}:
            answer.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            answer.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return answer

    async def _continue(self, request: web.Request) -> web.Response:
        form = await read_form(request)
        found = self._taken(form.get("pass", ""), request.headers.get(hdrs.ORIGIN, ""))
        page = form.get("page", "/")
        if found is None:
            return login_page(CONTINUED)
        seconds = (found.until_ms - self._now_ms()) / 1000
        answer = continue_page(escape(page if _PAGE.fullmatch(page) and not page.startswith("//") else "/"))
        return begin_session(request, answer, self._sessions, found.identity(), seconds)

    def _taken(self, text: str, origin: str) -> SessionPass | None:
        """Use up a pass that comes from a page of the JobManager that wrote it; None if it is not valid."""
        found, now_ms = self._passes.read(text), self._now_ms()
        self._used = {each: until_ms for each, until_ms in self._used.items() if now_ms < until_ms}
        if (
            found is None
            or found.refusal(self._epoch(), now_ms)
            or found.id in self._used
            or len(self._used) >= _MOST_USED
            or origin not in (f"http://{found.host}", f"https://{found.host}")
            or not self._sessions.is_valid(found.identity())
        ):
            return None
        self._used[found.id] = found.expires_at_ms()
        return found


def _policy_with(others: Sequence[str]) -> str:
    """Return the content security policy of a page that may ask ``others`` who leads, and send its pass there."""
    policy = CONTENT_SECURITY_POLICY
    for directive in ("connect-src 'self'", "form-action 'self'"):
        policy = policy.replace(directive, " ".join((directive, *others)))
    return policy
