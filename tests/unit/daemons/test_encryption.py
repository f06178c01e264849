"""A daemon's certificate is renewed while the daemon runs, and a file system that fails for a while ends nothing."""

from __future__ import annotations

import asyncio
import errno
import fcntl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons import encryption
from tests.unit.rest.server import eventually


async def test_a_certificate_that_cannot_be_looked_at_now_ends_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")  # as NFS does while its lock manager is away

    tls = encryption.open_tls(Configuration(), StateLayout(tmp_path, Configuration()), "127.0.0.1", founds=True)
    assert tls is not None
    monkeypatch.setattr(encryption, "RENEWAL_INTERVAL", 0.01)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with capture_logs() as lines:
        keeping = asyncio.create_task(tls.keep())
        try:
            await eventually(lambda: keeping.done() or len(lines) >= 2)
            assert not keeping.done()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    assert {line["reason"] for line in lines} == {"[Errno 37] No locks available"}
