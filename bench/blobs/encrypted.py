"""The price of TLS for BLOBs: a large one up and down through a JobManager that encrypts, as task managers do it.

The limit is what the machine can do in the same run: the bytes moved as in ``bench.blobs.transfers`` (on the way up,
hashed by their sender first, because the hash is a BLOB's name), and then encrypted by one side and decrypted by the
other as fast as ``openssl speed`` does it, in a row, because all of that needs the processor.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from bench.blobs.limits import Limits, limits_server
from bench.commands import temporary_directory
from bench.daemons import Server, job_manager
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads
from emberkeep.base.ids import JobId
from emberkeep.base.tls.contexts import client_context

_CIPHER = "aes-256-gcm"  # of TLS_AES_256_GCM_SHA384, which our processes agree on
_RECORD = 16 * 1024  # bytes
_LIMIT = 2**40
_GOAL = Goal(at_least=0.6)
_MB = 1e6


def measure(plan: Plan) -> list[Figure]:
    """One large BLOB each way, encrypted and not."""
    size = plan.size(256, 32) * 1024**2
    rates: dict[str, list[float]] = {}
    for _ in plan.turns("encrypted BLOBs"):
        cipher = _cipher_rate()
        rates.setdefault("cipher", []).append(cipher / _MB)
        with temporary_directory() as directory:
            limits = _limits(directory, size)
            for way, plain_limit in limits.items():
                rates.setdefault(f"{way} limit", []).append(1 / (1 / plain_limit + 2 / cipher) / _MB)
            for encryption in ("tls", "none"):
                say(f"  {encryption}")
                state = directory / encryption
                state.mkdir()
                with job_manager(state, encryption=encryption) as server:
                    found = asyncio.run(_transfers(server, state / "copy", size))
                for way, rate in found.items():
                    rates.setdefault(f"{way} {encryption}", []).append(rate / _MB)
    figures = [Figure(f"openssl speed {_CIPHER}", "MB/s", tuple(rates["cipher"]))]
    for way in ("up", "down"):
        name = f"{size // 1024**2} MiB {way}"
        encrypted, plain, limit = (rates[f"{way} {kind}"] for kind in ("tls", "none", "limit"))
        figures += [
            Figure(f"{name}, encrypted", "MB/s", tuple(encrypted)),
            Figure(f"{name}, not encrypted", "MB/s", tuple(plain)),
            Figure(f"{name}: limit with encryption", "MB/s", tuple(limit)),
            Figure(f"{name}: encrypted / limit", "×", ratios(encrypted, limit), _GOAL),
            Figure(f"{name}: encrypted / not", "×", ratios(encrypted, plain)),
        ]
    return figures


def _cipher_rate() -> float:
    """Bytes per second of one core."""
    program = shutil.which("openssl")
    if program is None:
        raise SystemExit("the command `openssl` is missing: install it to measure encrypted BLOBs")
    command = [program, "speed", "-mr", "-seconds", "2", "-bytes", str(_RECORD), "-evp", _CIPHER]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    line = next(line for line in told.splitlines() if line.startswith("+F:"))
    return float(line.rpartition(":")[2])


def _limits(directory: Path, size: int) -> dict[str, float]:
    """Bytes per second without encryption, by way."""
    file, content = directory / "large", secrets.token_bytes(size)
    file.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    served = directory / "limits"
    with limits_server(served) as address:
        limit = Limits(address)
        begin = time.monotonic()
        hashlib.sha256(content).hexdigest()  # the name under which it is sent
        limit.put(file, sha256)
        up = size / (time.monotonic() - begin)
        (served / f"{sha256}.stored").rename(served / sha256)
        begin = time.monotonic()
        limit.get(directory / "copy", size, sha256)
        down = size / (time.monotonic() - begin)
        limit.close()
    return {"up": up, "down": down}


async def _transfers(server: Server, copy: Path, size: int) -> dict[str, float]:
    """Bytes per second, by way, of the adapters that daemons and drivers use."""
    threads = BlobThreads(server.token, tls=client_context(server.ca) if server.ca else None)
    try:
        content, owner = secrets.token_bytes(size), JobId(secrets.token_hex(16))
        begin = time.monotonic()
        key = await HttpBlobUploads(threads, lambda: server.address).put_bytes(owner, content, ["bench"])
        up = size / (time.monotonic() - begin)
        source = HttpBlobSource(threads, lambda: server.address, max_size=_LIMIT)
        begin = time.monotonic()
        await source.download(owner, key, copy)
        return {"up": up, "down": size / (time.monotonic() - begin)}
    finally:
        threads.close()
