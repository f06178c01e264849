"""Documents with an issuer's keys: what may stand beside the keys, and that one bad entry hides no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from emberkeep.adapters.oidc.issuer_keys import DISCOVERY_PATH, IssuerKeys

pytestmark = pytest.mark.req("SEC-11")

KEY = {
    **json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key())),
    "kid": "good",
    "alg": "ES256",
    "use": "sig",
}


@contextlib.asynccontextmanager
async def reading(document: dict[str, Any]) -> AsyncIterator[IssuerKeys]:
    """Serve a document of keys, and read it; the keys have been read, or cannot be."""
    app = web.Application()
    runner = web.AppRunner(app)

    async def discover(_request: web.Request) -> web.Response:
        return web.json_response({"issuer": issuer, "jwks_uri": f"{issuer}/keys", "other": [1]})

    async def keys(_request: web.Request) -> web.Response:
        return web.json_response(document)

    app.add_routes([web.get(DISCOVERY_PATH, discover), web.get("/keys", keys)])
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    issuer = f"http://{host}:{port}"
    known = IssuerKeys(issuer)
    task = asyncio.create_task(known.run())
    try:
        async with asyncio.timeout(30):
            while known._tried_at < 0 and not task.done():  # noqa: ASYNC110 - what is waited for knows nothing of tests
                await asyncio.sleep(0.01)
        assert not task.done(), task.exception()
        yield known
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


@pytest.mark.parametrize("beside", [{"ttl": 3600}, {"updated": "2026-01-01"}, {"meta": {"a": 1}}, {"names": ["a"]}])
async def test_other_members_of_a_set_of_keys_are_ignored(beside: dict[str, Any]) -> None:
    async with reading({**beside, "keys": [KEY]}) as known:
        assert known.find("good") is not None


@pytest.mark.parametrize("bad", [5, None, ["a"], {**KEY, "kid": ["a"]}, {**KEY, "kid": 7}, {**KEY, "kid": None}, {}])
async def test_a_malformed_entry_hides_no_key(bad: Any) -> None:
    async with reading({"keys": [bad, KEY]}) as known:
        assert known.find("good") is not None


async def test_a_key_of_a_kind_that_this_machines_library_lacks_hides_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = jwt.PyJWK.from_dict

    def in_fips_mode(entry: dict[str, Any]) -> jwt.PyJWK:
        if entry["kty"] == "OKP":
            raise UnsupportedAlgorithm("ed25519 is not supported by this version of OpenSSL")
        return made(entry)

    monkeypatch.setattr(jwt.PyJWK, "from_dict", in_fips_mode)
    async with reading({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "other", "x": "AA"}, KEY]}) as known:
        assert known.find("good") is not None
