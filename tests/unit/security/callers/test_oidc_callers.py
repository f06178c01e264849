"""Tokens of an OpenID Connect issuer, which is a process of its own, at the port of a real JobManager."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import jwt
import pytest
from aiohttp import ClientSession
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from emberkeep.adapters.oidc import issuer_keys
from emberkeep.adapters.oidc.callers import OidcCallers
from emberkeep.adapters.oidc.issuer_keys import IssuerKeys
from emberkeep.base.configuration.layout import NODE_FILE, state_layout
from emberkeep.base.configuration.options.access import OIDC_AUDIENCE, OIDC_CA, OIDC_ISSUER, OIDC_ROLES
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput, RetryLater
from emberkeep.base.system import real_system
from emberkeep.base.tls.contexts import client_context
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.identities.oidc import ClaimRules
from tests.support.certificates import cluster_tls

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-11")]


@dataclass
class Issuer:
    """The process, asked over TLS."""

    url: str
    ca: str

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = Request(f"{self.url}{path}", data=json.dumps(body).encode(), method="POST")
        with urlopen(request, context=client_context(self.ca), timeout=60) as answer:
            return json.loads(answer.read())

    def token(self, **claims: Any) -> str:
        return str(self.post("/token", {"sub": "ana", "groups": ["ops"], **claims})["token"])

    def keys(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/keys", context=client_context(self.ca), timeout=60) as answer:
            return dict(json.loads(answer.read()))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    directory = tmp_path_factory.mktemp("issuer")
    tls = cluster_tls(directory, "127.0.0.1")
    words = [sys.executable, "-m", "tests.support.oidc_issuer", str(directory / NODE_FILE)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Issuer(process.stdout.readline().strip(), tls.files.ca)
        process.kill()


def settings(state: Path, issuer: Issuer, **texts: str) -> Configuration:
    own = {STATE_DIRECTORY.key: str(state), REST_PORT.key: "0", ENCRYPTION.key: "none"}
    oidc = {
        OIDC_ISSUER.key: issuer.url,
        OIDC_CA.key: issuer.ca,
        OIDC_AUDIENCE.key: "emberkeep",
        OIDC_ROLES.key: "ops=operator, data-eng=submitter@team-a",
    }
    return Configuration().with_texts({**own, **oidc, **texts}, "test")


Ask = Callable[..., Any]


@pytest.fixture
async def ask(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ask]:
    """Sends a request with a token to the JobManager until it can decide; returns status and body."""
    monkeypatch.setattr(issuer_keys, "_SOONEST", 0.2)
    configuration = settings(tmp_path, issuer)
    layout = state_layout(configuration, {})
    services = Services()
    try:
        async with (
            job_manager_process(real_system(), configuration, layout, services, asyncio.Event()) as process,
            ClientSession(process.url) as session,
        ):

            async def send(token: str, method: str = "GET", path: str = "/v1/identity") -> tuple[int, Any]:
                while True:
                    headers = {"Authorization": f"Bearer {token}"}
                    async with session.request(method, path, headers=headers) as answer:
                        if answer.status != 503:
                            return answer.status, await answer.json()
                    await asyncio.sleep(0.02)

            yield send
    finally:
        await services.cancel()


async def test_a_token_of_the_issuer_names_its_holder_and_role(ask: Ask, issuer: Issuer) -> None:
    until = int(time.time()) + 600
    token = await asyncio.to_thread(issuer.token, groups=["data-eng"], exp=until)
    status, body = await ask(token)
    assert (status, body) == (
        200,
        {"name": "oidc:ana", "role": "submitter", "namespace": "team-a", "expires": until * 1000},
    )


async def test_a_role_that_is_missing_names_the_setting(ask: Ask, issuer: Issuer) -> None:
    token = await asyncio.to_thread(issuer.token)
    status, body = await ask(token, "GET", "/v1/tokens")
    assert status == 403
    assert "needs the role admin, and 'oidc:ana' has the role operator" in body["detail"]
    assert "security.oidc.roles" in body["hint"]


async def test_a_token_cannot_act_as_a_process_of_the_cluster(ask: Ask, issuer: Issuer) -> None:
    status, _ = await ask(await asyncio.to_thread(issuer.token), "POST", "/rpc/v1/StartDriver")
    assert status == 403


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1_700_000_000}, "has expired, at 2023-11-14 22:13:20 UTC"),
        ({"nbf": 4_000_000_000}, "is not valid: The token is not yet valid (nbf)"),
        ({"aud": "another"}, "the token is not for 'emberkeep' (security.oidc.audience)"),
        ({"aud": None}, "is not"),
        ({"iss": "https://another.example"}, "(security.oidc.issuer)"),
        ({"groups": ["sales"]}, "no role is given to 'ana': the claim 'groups' has none of the values"),
        ({"sub": "a b"}, "security.oidc.name-claim"),
    ],
)
async def test_what_is_wrong_with_a_token_is_said(
    ask: Ask, issuer: Issuer, claims: dict[str, Any], reason: str
) -> None:
    status, body = await ask(await asyncio.to_thread(issuer.token, **claims))
    assert status == 401
    assert reason in body["detail"]
    assert "the issuer gives it" in body["hint"]


def part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def signed_with_secret(claims: dict[str, Any], key_id: str, secret: str) -> str:
    """Return a token with a symmetric signature. The library refuses to make one with a public key."""
    signed = f"{part({'alg': 'HS256', 'kid': key_id})}.{part(claims)}"
    signature = hmac.digest(secret.encode(), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


async def test_forged_tokens_are_refused(ask: Ask, issuer: Issuer) -> None:
    good = await asyncio.to_thread(issuer.token)
    header, body, signature = good.split(".")
    key_id = jwt.get_unverified_header(good)["kid"]
    published = json.dumps((await asyncio.to_thread(issuer.keys))["keys"][0])
    claims = jwt.decode(good, options={"verify_signature": False})
    own = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    more = part({**claims, "groups": ["ops"], "sub": "root"})
    forged = {
        "changed claims": f"{header}.{more}.{signature}",
        "no algorithm": f"{part({'alg': 'none', 'kid': key_id})}.{body}.",
        "the public key as a secret": signed_with_secret(claims, key_id, published),
        "another key": jwt.encode(claims, own, algorithm="RS256", headers={"kid": key_id}),
        "another key, inside the token": jwt.encode(
            claims, own, algorithm="RS256", headers={"kid": key_id, "jwk": {"kty": "RSA"}}
        ),
        "an unknown key": jwt.encode(claims, own, algorithm="RS256", headers={"kid": "mine"}),
        "no parts": "..",
        "broken text": "a.b.c",
        "too long": f"{header}.{body}{'A' * 20_000}.{signature}"[:8000],
    }
    assert (await ask(good))[0] == 200
    for what, token in forged.items():
        status, _ = await ask(token)
        assert status == 401, what


@pytest.mark.req("SEC-19")
@pytest.mark.parametrize(
    "credential",
    [
        "a.\udcff.b",
        "..",
        "\0.\0.\0",
        "é.é.é",
        base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.",
        base64.urlsafe_b64encode(b'{"alg":7,"kid":[]}').decode() + ".e30.",
    ],
)
async def test_what_is_no_token_is_unknown(issuer: Issuer, credential: str) -> None:
    rules = ClaimRules("sub", "groups", ())
    assert OidcCallers(IssuerKeys(issuer.url), issuer.url, "emberkeep", rules, lambda: 0).identify(credential) == ""


async def test_a_new_key_is_read_when_it_is_needed(ask: Ask, issuer: Issuer) -> None:
    before = await asyncio.to_thread(issuer.token)
    assert (await ask(before))[0] == 200
    await asyncio.to_thread(issuer.post, "/rotate", {})

    assert (await ask(await asyncio.to_thread(issuer.token)))[0] == 200
    status, body = await ask(before)
    assert status == 401
    assert "has not published the key that signed the token" in body["detail"]


async def test_while_the_issuer_does_not_answer_nobody_gets_in(issuer: Issuer) -> None:
    keys = IssuerKeys("https://127.0.0.1:9")
    reading = asyncio.create_task(keys.run())
    try:
        with pytest.raises(RetryLater, match="cannot be read"):
            keys.find("any")
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_keys_that_are_too_old_are_not_used(issuer: Issuer) -> None:
    now = [0.0]
    keys = IssuerKeys(issuer.url, client_context(issuer.ca), now=lambda: now[0])
    reading = asyncio.create_task(keys.run())
    try:
        async with asyncio.timeout(60):
            while keys._read_at is None:  # noqa: ASYNC110 - what is waited for knows nothing of tests
                await asyncio.sleep(0.01)
        assert keys.find(None) is not None
        now[0] += 24 * 3600 + 1
        with pytest.raises(RetryLater):
            keys.find(None)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (OIDC_ISSUER.key, "http://login.example", "is not an https address"),
        (OIDC_AUDIENCE.key, "", "security.oidc.audience is empty"),
        (OIDC_ROLES.key, "", "security.oidc.roles is empty"),
        (OIDC_ROLES.key, "ops=root", "does not have the form"),
        (OIDC_CA.key, "/no/such/file", "cannot read /no/such/file"),
    ],
)
async def test_a_wrong_setting_ends_the_start(tmp_path: Path, issuer: Issuer, key: str, value: str, said: str) -> None:
    configuration = settings(tmp_path, issuer, **{key: value})
    services = Services()
    with pytest.raises(InvalidInput, match=said):
        async with job_manager_process(
            real_system(), configuration, state_layout(configuration, {}), services, asyncio.Event()
        ):
            pass
    await services.cancel()
