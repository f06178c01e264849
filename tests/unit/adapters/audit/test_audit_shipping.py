"""The copy of the audit log in the shared storage: whole, in order and without repetition, whatever ends in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from emberkeep.adapters.audit import shipping
from emberkeep.adapters.audit.files import NAME, AuditFiles
from emberkeep.adapters.audit.shipping import AuditShipping
from emberkeep.audit.entry import Entry, decode, encode, entry_id
from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY, STORAGE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.identity import Role
from emberkeep.base.system import real_system
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.protocol.rest_tokens import NewToken
from tests.unit.rest.server import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-15")]

SMALL_FILE = 4_000  # bytes


class Logs:
    """An audit log, and its copy."""

    def __init__(self, directory: Path) -> None:
        self.source_directory, self.copy = directory / "own", directory / "shared" / "jm-1"
        self.source = AuditFiles(self.source_directory, SMALL_FILE, 50)
        self.usable = True
        self.written: list[str] = []

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            identifier = entry_id(1_000 + len(self.written), 0)
            self.source.append(encode(entry(identifier)))
            self.written.append(identifier)

    def shipping(self) -> AuditShipping:
        """A new one, as after a restart."""
        return AuditShipping(self.source, AuditFiles(self.copy, SMALL_FILE, 50), lambda: self.usable)

    def copied(self) -> list[str]:
        lines = AuditFiles(self.copy, SMALL_FILE, 50).lines()
        return [found.id for found in map(decode, lines) if found is not None][::-1]


def entry(identifier: str) -> Entry:
    return Entry(
        id=identifier, identity="ana", role="admin", login="token", address="", action="x", status=200, outcome="done"
    )


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_all_entries_are_copied_once_over_restarts_and_rotations(logs: Logs) -> None:
    for count in (3, 0, 60, 1, 200):
        logs.write(count)
        process = logs.shipping()
        assert not process.ship()
        assert not process.ship()
        assert logs.copied() == logs.written
    assert len(list(logs.copy.iterdir())) > 3, "the copy is rotated, too"


def test_many_are_copied_in_pieces_the_oldest_first(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_AT_ONCE", 10)
    logs.write(25)
    process = logs.shipping()
    assert process.ship()
    assert logs.copied() == logs.written[:10]
    assert process.ship()
    assert not process.ship()
    assert logs.copied() == logs.written


def test_a_copy_that_a_crash_has_torn_is_continued(logs: Logs) -> None:
    logs.write(5)
    logs.shipping().ship()
    copy = logs.copy / NAME
    copy.write_bytes(copy.read_bytes()[:-30])
    logs.write(2)
    logs.shipping().ship()
    assert logs.copied() == logs.written


async def test_nothing_is_created_while_the_storage_is_away(logs: Logs) -> None:
    logs.write(3)
    logs.usable = False
    process = logs.shipping()
    await process.close()
    assert not logs.copy.exists()
    logs.usable = True
    await process.close()
    assert logs.copied() == logs.written


async def test_an_error_of_the_storage_is_outlived(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.write(3)
    process = logs.shipping()
    failing: Callable[..., None] = _fail
    with monkeypatch.context() as broken:
        broken.setattr(process._sink, "append", failing)
        await process.close()
    logs.write(2)
    await process.close()
    assert logs.copied() == logs.written


def _fail(_: bytes) -> None:
    raise OSError(28, "No space left on device")


async def test_a_job_manager_copies_its_audit_log_to_the_shared_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "INTERVAL", 0.05)
    shared = tmp_path / "shared"
    shared.mkdir()
    texts = {STATE_DIRECTORY.key: str(tmp_path / "state"), REST_PORT.key: "0", STORAGE_DIRECTORY.key: str(shared)}
    configuration = Configuration().with_texts(texts, "test")
    layout = state_layout(configuration, {})
    services = Services()
    copy = AuditFiles(shared / "audit" / "jobmanager", SMALL_FILE, 50)

    def actions() -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return [found.action for found in map(decode, copy.lines()) if found is not None]
        return []

    async with job_manager_process(real_system(), configuration, layout, services, asyncio.Event()) as process:
        token = layout.token_file.read_text().strip()
        async with RestClient(Endpoint(process.url, token, ca=layout.tls_files.ca)) as client:
            await client.tokens.create(NewToken(name="ana", role=Role.VIEWER))
        await eventually(lambda: "POST /v1/tokens" in actions())
        await services.cancel()
