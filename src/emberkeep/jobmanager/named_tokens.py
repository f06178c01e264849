"""The named tokens of a cluster, while this JobManager leads: reads and writes their record, and recognises them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from emberkeep.base.errors import Conflict, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.identity import Identity, Role
from emberkeep.base.system import System
from emberkeep.identities.model import NamedToken, NamedTokens
from emberkeep.identities.ports import TokenStore
from emberkeep.identities.tokens import digest, is_current, issue, recognise, revoke, token_text

_SECRET_BYTES = 32
_ID_LENGTH = 10  # hex digits
_PAUSE = 1.0  # seconds between two attempts to read the record
_REPAIR_PAUSE = 30.0  # seconds after which a record that cannot be used is read again: somebody may have repaired it

_log = structlog.get_logger(__name__)


def _new_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


class TokenRegistry:
    """The only writer of the named tokens. Belongs to one event loop.

    Until the record has been read, holders of named tokens are told to try again. If it cannot be read at all, they are
    refused, and so are changes: nothing is lost.
    """

    def __init__(self, store: TokenStore, system: System, new_secret: Callable[[], str] = _new_secret) -> None:
        self._store = store
        self._system = system
        self._new_secret = new_secret
        self._known: NamedTokens | None = None
        self._problem = ""
        self._changes = asyncio.Lock()
        self._unread = asyncio.Event()
        self._unread.set()

    async def run(self) -> None:
        """Read the record until that succeeds, and again after each change with an unknown outcome. Never return."""
        while True:
            await self._unread.wait()
            try:
                async with self._changes:
                    self._known = await self._store.read()
            except (RetryLater, UnknownOutcome) as error:
                _log.warning("the named tokens cannot be read yet", reason=str(error))
                await asyncio.sleep(_PAUSE)
                continue
            except Fatal as error:
                problem = f"the named tokens cannot be read: {error}"
                if problem != self._problem:
                    _log.error("holders of named tokens are refused", reason=str(error))
                self._problem = problem
                await asyncio.sleep(_REPAIR_PAUSE)
                continue
            if self._problem:
                _log.info("the named tokens can be read again")
            self._problem = ""
            self._unread.clear()

    def identify(self, credential: str) -> Identity | str:
        """Return the token's holder, or the reason why the token is refused; "" if the token is unknown.

        Raises RetryLater while the record has not been read.
        """
        if not credential.startswith("ek."):
            return ""
        if self._problem:
            return self._problem
        token = recognise(self._read().tokens, credential)
        return "" if token is None else _holder(token, self._now())

    def is_current(self, identity: Identity) -> bool:
        """Return True if the identity may still open pages: it is the cluster's own, or a valid token gives it."""
        known = self._known
        return identity.is_cluster or (known is not None and is_current(known.tokens, identity, self._now()))

    def all(self) -> tuple[NamedToken, ...]:
        """Return all tokens, the oldest first. Raises RetryLater, Fatal (the record is unreadable)."""
        return self._read().tokens

    async def create(self, name: str, role: Role, namespace: str, valid_for_ms: int) -> tuple[NamedToken, str]:
        """Issue a token. Return its record and its text, which nobody can read again.

        Raises Conflict (see ``issue``), RetryLater, UnknownOutcome, Fatal.
        """
        secret, now = self._new_secret(), self._now()
        token = NamedToken(
            id=self._system.ids.hex32()[:_ID_LENGTH],
            name=name,
            role=role,
            namespace=namespace,
            sha256=digest(secret),
            created_ms=now,
            expires_ms=now + valid_for_ms,
        )
        async with self._changes:
            await self._record(issue(await self._reread(), token, now))
        return token, token_text(token.id, secret)

    async def revoke(self, name: str) -> tuple[NamedToken, ...]:
        """Revoke the token with the id ``name``, or all tokens of that name. Return those that were valid.

        Raises Absent, RetryLater, UnknownOutcome, Fatal.
        """
        async with self._changes:
            tokens, revoked = revoke(await self._reread(), name, self._now())
            await self._record(tokens)
        return revoked

    async def _reread(self) -> NamedTokens:
        """Return what is stored: an earlier change may have had an unknown outcome."""
        self._known = await self._store.read()
        return self._known

    async def _record(self, tokens: NamedTokens) -> None:
        try:
            await self._store.record(tokens)
        except UnknownOutcome:
            self._known = None
            self._unread.set()
            raise
        except Conflict as error:
            raise RetryLater(f"this JobManager is no longer the leader: {error.message}", hint="try again") from error
        self._known = tokens

    def _read(self) -> NamedTokens:
        if self._problem:
            raise Fatal(self._problem, hint="the cluster's own token works; see docs/security.md on named tokens")
        if self._known is None:
            raise RetryLater("the named tokens have not been read yet", hint="the job store may be unreachable")
        return self._known

    def _now(self) -> int:
        return self._system.clock.now_ms()


def _holder(token: NamedToken, now_ms: int) -> Identity | str:
    """Return the holder of a valid token; for any other token, the reason why it is refused."""
    if token.is_valid(now_ms):
        return token.identity
    ended, since = ("was revoked", token.revoked_ms) if token.revoked_ms else ("expired", token.expires_ms)
    return f"the token {token.id} of {token.name!r} {ended} at {datetime.fromtimestamp(since / 1000, UTC):%F %T} UTC"
