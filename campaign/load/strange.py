"""Requests that no honest client sends, drawn from a seed. They must be refused, and do nothing else.

Nothing here may change what the honest clients of a history see: a request with a method other than GET never names a
job, a node or a savepoint that exists.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

import msgspec

FORBIDDEN = (  # they do what they say: end the cluster, give away its storage
    ("DELETE", "/v1/cluster"),
    ("POST", "/v1/taskmanagers/{taskmanagerid}/stop"),
    ("POST", "/v1/storage/adopt"),
    ("POST", "/v1/storage/purge"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/{tokenid}"),
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
_TEXTS = (
    "",
    "0",
    "-1",
    "%00",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..",
    "a" * 300,
    "%F0%9F%94%A5",
    "%FF%FE",
    "'%20OR%201=1--",
    "{jobid}",
    "%E2%80%AE",
    "1e309",
    "9" * 40,
    "true",
    "null",
)
_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    2**200,
    1e308,
    "",
    "\x00",
    "\ud7ff\ue000",
    "x" * 5000,
    [],
    {},
    [[]],
    {"": {}},
    ["a"] * 2000,
    "../../etc/passwd",
    "🔥",
)
_TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "application/octet-stream",
    "text/plain",
    "multipart/form-data; boundary=x",
    "",
)
_DEEP = 100_000
_LARGE = 3 * 1024**2


class Strange(msgspec.Struct, frozen=True):
    """A request. ``raw``: bytes for a connection, instead of all else."""

    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    raw: bytes = b""


def draw(chance: random.Random, operations: Sequence[tuple[str, str]], example: bytes) -> Strange:
    """Draw a request. ``operations``: methods and paths that exist. ``example``: a submission that would be right."""
    if chance.random() < 0.1:
        return Strange(raw=_raw(chance))
    method, template = chance.choice([each for each in operations if each not in FORBIDDEN])
    if chance.random() < 0.15:
        # A method that the path has, but that is forbidden here, is never drawn by chance.
        method = chance.choice([each for each in METHODS if (each, template) not in FORBIDDEN])
    path = re.sub(r"\{(\w+)\}", lambda found: _part(chance, found[1]), template)
    if chance.random() < 0.3:
        path += "?" + "&".join(
            f"{chance.choice(('limit', 'before', 'wait', 'mode', 'path', 'x'))}={chance.choice(_TEXTS)}"
            for _ in range(chance.randint(1, 5))
        )
    body = _body(chance, example) if method not in ("GET", "HEAD") or chance.random() < 0.1 else b""
    return Strange(method, path, _headers(chance), body)


def _part(chance: random.Random, name: str) -> str:
    honest = {
        "jobid": f"{chance.getrandbits(128):032x}",
        "triggerid": f"{chance.getrandbits(128):032x}",
        "key": f"{chance.choice('pt')}-{chance.getrandbits(256):064x}",
        "nodeid": f"strange-{chance.getrandbits(32)}",
        "taskmanagerid": f"strange-{chance.getrandbits(32)}",
        "name": "jobmanager.log",
    }
    return honest[name] if name in honest and chance.random() < 0.5 else chance.choice(_TEXTS) or "%20"


def _headers(chance: random.Random) -> tuple[tuple[str, str], ...]:
    found = [("Content-Type", chance.choice(_TYPES))]
    if chance.random() < 0.2:
        name = chance.choice(("Idempotency-Key", "Range", "Emberkeep-Attempt", "Accept", "Cookie", "Host", "Origin"))
        found.append((name, chance.choice(("x" * 6000, "bytes=9-1", "bytes=0-" + "9" * 30, "é", "a,b;q=x", "-1"))))
    if chance.random() < 0.1:
        found.append(("Content-Encoding", chance.choice(("gzip", "deflate", "br", "identity"))))
    if chance.random() < 0.1:
        found.append(("Authorization", chance.choice(("", "Bearer", "Bearer " + "x" * 3000, "Basic Og==", "Bearer é"))))
    return tuple(found)


def _body(chance: random.Random, example: bytes) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 100, 50_000)))
    if kind == 1:
        return chance.choice((b"[", b'{"a":')) * chance.choice((10, 1000, _DEEP))
    if kind == 2:
        return b'"' + b"a" * chance.choice((10, _LARGE)) + b'"'
    if kind == 3:
        return json.dumps(chance.choice(_VALUES)).encode()  # msgspec has no integers of 200 bits
    if kind == 4:
        return example[: chance.randrange(len(example))]
    return _spoilt(chance, example)


def _spoilt(chance: random.Random, example: bytes) -> bytes:
    """Return the example with a value replaced, a field removed or one added, somewhere."""
    root = json.loads(example)
    place = root
    while True:
        deeper = [value for value in (place.values() if isinstance(place, dict) else place) if value]
        deeper = [value for value in deeper if isinstance(value, dict | list)]
        if not deeper or chance.random() < 0.5:
            break
        place = chance.choice(deeper)
    value = chance.choice(_VALUES)
    if isinstance(place, list):
        place[chance.randrange(len(place))] = value
    else:
        name = chance.choice([*place, "unknown"])
        place[name] = value
    return json.dumps(root).encode()


def _raw(chance: random.Random) -> bytes:
    return chance.choice(
        (
            chance.randbytes(500),
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /v1/overview HTTP/1.1\r\nHost: " + b"a" * 70_000 + b"\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
            b"GET /v1/overview HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(64),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /v1/events/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )
    )
