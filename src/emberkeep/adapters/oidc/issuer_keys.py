"""The public keys of an OpenID Connect issuer, read at intervals while the process runs.

Sources: OpenID Connect Discovery 1.0, section 4 (the issuer's document), and RFC 7517 (sets of keys).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import jwt
import msgspec
import structlog
from cryptography.exceptions import UnsupportedAlgorithm

from emberkeep.adapters.http.security import is_loopback
from emberkeep.base.clock import since_boot
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput, RetryLater

DISCOVERY_PATH = "/.well-known/openid-configuration"
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_MOST_BYTES = 256 * 1024  # of one document
_MOST_KEYS = 100
_SECONDS = 10.0  # for one document
_REFRESH = 600.0  # seconds between two reads
_SOONEST = 10.0  # seconds between two reads, if a token names an unknown key or the last read has failed
_MOST_UNKNOWN = 256
_OLDEST = 24 * 3600.0  # seconds for which keys are used while no newer ones can be read

_log = structlog.get_logger(__name__)


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct, frozen=True):
    """A set of keys. It may have other members, which are ignored (RFC 7517, section 5)."""

    keys: list[msgspec.Raw]


def check_issuer(url: str, field: str = "security.oidc.issuer") -> str:
    """Return an issuer's URL. Raises InvalidInput unless it is HTTPS; on loopback it may be HTTP."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise InvalidInput(f"{field}: {url[:200]!r} is not a URL", field=field) from None
    if (parts.scheme == "https" and host) or (parts.scheme == "http" and is_loopback(host)):
        return url
    raise InvalidInput(
        f"{field}: {url[:200]!r} is not an https address",
        field=field,
        hint="who can change the keys on the way can log in as anybody",
    )


class IssuerKeys:
    """The keys that the issuer publishes now. Belongs to one event loop; ``run`` reads the keys."""

    def __init__(self, issuer: str, tls: ssl.SSLContext | None = None, now: Callable[[], float] = since_boot) -> None:
        """``tls``: the CAs that may prove the issuer; None: the system's CAs."""
        self._issuer = check_issuer(issuer)
        self._tls = tls
        self._now = now
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at = -_SOONEST
        self._problem = "they have not been read yet"
        self._unknown: dict[str, float] = {}  # when keys that the issuer did not publish were first asked for
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Read the keys now, every 10 minutes, and when an unknown one is needed. Never return."""
        while True:
            self._wanted.clear()
            began = self._now()
            try:
                keys = await self._read()
            except (aiohttp.ClientError, OSError, ValueError, EmberkeepError, msgspec.MsgspecError) as error:
                self._problem = f"{type(error).__name__}: {str(error)[:300]}"
                _log.warning("cannot read the keys of the issuer", issuer=self._issuer, reason=self._problem)
                pause = _SOONEST
            else:
                self._keys, self._read_at, pause = keys, began, _REFRESH
                self._unknown = {key_id: at for key_id, at in self._unknown.items() if key_id not in keys}
            self._tried_at = self._now()
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, self._tried_at + _SOONEST - self._now()))

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return a key by its id, or the only one if there is no id. Return None if the issuer has no such key.

        Raises RetryLater while that is not known.
        """
        now = self._now()
        if self._read_at is None or now - self._read_at > _OLDEST:
            raise RetryLater(
                f"the keys of the issuer {self._issuer} cannot be read: {self._problem}",
                hint="the cluster's own token and named tokens work",
            )
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        found = self._keys.get(key_id)
        if found is None and self._first_asked(key_id, now) >= self._read_at:
            self._wanted.set()
            raise RetryLater(f"the issuer {self._issuer} is asked for a new key", hint="try again")
        return found

    def _first_asked(self, key_id: str, now: float) -> float:
        """Return when this unknown key was first asked for."""
        if key_id not in self._unknown and len(self._unknown) >= _MOST_UNKNOWN:
            del self._unknown[next(iter(self._unknown))]
        return self._unknown.setdefault(key_id, now)

    async def _read(self) -> dict[str, jwt.PyJWK]:
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_SECONDS), auto_decompress=False, trust_env=False
        ) as session:
            document = from_json(await self._get(session, self._issuer.rstrip("/") + DISCOVERY_PATH), _Discovery)
            if document.issuer != self._issuer:
                raise Fatal(f"its document names the issuer {document.issuer[:200]!r}")
            return _usable(await self._get(session, check_issuer(document.jwks_uri, "jwks_uri")))

    async def _get(self, session: aiohttp.ClientSession, url: str) -> bytes:
        tls = True if self._tls is None else self._tls
        plain = {"Accept-Encoding": "identity"}
        async with session.get(url, allow_redirects=False, ssl=tls, headers=plain) as answer:
            if answer.status != 200:
                raise Fatal(f"{url} answers with HTTP status {answer.status}")
            data = bytearray()
            async for chunk in answer.content.iter_chunked(65536):
                data += chunk
                if len(data) > _MOST_BYTES:
                    raise Fatal(f"{url} sends more than {_MOST_BYTES} bytes")
            return bytes(data)


def _usable(document: bytes) -> dict[str, jwt.PyJWK]:
    """Return the set's keys for asymmetric signatures, by id. Others are left out."""
    found: dict[str, jwt.PyJWK] = {}
    for index, raw in enumerate(from_json(document, _KeySet).keys[:_MOST_KEYS]):
        entry = _entry(raw)
        if entry is None or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(entry)
        except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError):
            continue  # of a kind that cannot be used here
        if key.algorithm_name in ASYMMETRIC:
            found[key.key_id or f"#{index}"] = key
    if not found:
        raise Fatal("it publishes no key for asymmetric signatures")
    return found


def _entry(raw: msgspec.Raw) -> dict[str, Any] | None:
    """Return a key's members; None if it is malformed, so that it hides no other key."""
    try:
        entry = from_json(bytes(raw), dict[str, Any])
    except msgspec.DecodeError:
        return None
    return entry if isinstance(entry.get("kid"), str | None) else None
