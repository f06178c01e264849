"""A daemon warns if others cannot reach the address that it announces, and starts nevertheless."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.announced_address import AnnouncedAddress, warn_of_announced_address
from emberkeep.daemons.jobmanager import __main__

pytestmark = pytest.mark.anyio


async def reasons(address: str, bound: str, peer: str = "") -> list[str]:
    with capture_logs() as logs:
        await warn_of_announced_address(AnnouncedAddress("rest.address", address, "rest.bind-address", bound, peer))
    return [str(line["reason"]) for line in logs]


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5", "0.0.0.0"),
        ("10.0.0.5", "::"),
        ("[fd00::5]", "fd00::5"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("10.0.0.5", "no-such-host.invalid"),
    ],
)
async def test_an_address_that_is_bound_needs_no_warning(address: str, bound: str) -> None:
    assert await reasons(address, bound) == []


@pytest.mark.parametrize(
    ("address", "bound", "reason"),
    [
        ("10.0.0.5", "127.0.0.1", "rest.address is 10.0.0.5, but rest.bind-address is 127.0.0.1, which only this"),
        ("10.0.0.5", "10.0.0.6", "rest.address is 10.0.0.5, but rest.bind-address is 10.0.0.6"),
        ("127.0.0.1", "127.0.0.2", "rest.address is 127.0.0.1, but rest.bind-address is 127.0.0.2"),
        ("127.0.0.1", "0.0.0.0", "rest.address is 127.0.0.1, which only this machine reaches, though"),
        ("0.0.0.0", "0.0.0.0", "rest.address is 0.0.0.0, which stands for all addresses of a machine"),
        ("", "::", "rest.address is empty, which stands for all addresses of a machine"),
        ("no-such-host.invalid", "127.0.0.1", "rest.address is no-such-host.invalid, which this machine cannot"),
    ],
)
async def test_an_address_that_is_not_bound_is_warned_of(address: str, bound: str, reason: str) -> None:
    (found,) = await reasons(address, bound)
    assert found.startswith(reason)


async def test_a_name_that_is_loopback_here_is_warned_of_if_others_connect() -> None:
    (found,) = await reasons("localhost", "localhost", "10.0.0.5")
    assert found.startswith("rest.address is localhost (127.0.0.1")
    assert found.endswith("which only this machine reaches, and 10.0.0.5 connects to it")
    assert await reasons("localhost", "localhost", "127.0.0.1") == []
    assert await reasons("localhost", "localhost", "no-such-host.invalid") == []


async def test_a_job_manager_warns_and_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(__main__, "set_up_logging", lambda *_: None)  # of the whole process
    texts = {
        "emberkeep.state-dir": str(tmp_path),
        "rest.address": "10.0.0.5",
        "rest.port": "0",
        "security.encryption": "none",
        "security.insecure-network": "true",
    }
    configuration = Configuration().with_texts(texts, "the test")
    stop = asyncio.Event()
    stop.set()
    with capture_logs() as logs:
        await __main__.serve(configuration, state_layout(configuration, {}), stop)
    events = [line["event"] for line in logs]
    assert events[0] == "other processes may not reach this one at the address that it announces"
    assert "JobManager leads" in events
