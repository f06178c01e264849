"""What `emberkeep doctor` sees of a real ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep import __version__
from emberkeep.adapters.zookeeper.layout import encode_node, zookeeper_layout
from emberkeep.adapters.zookeeper.registration import own_registration
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.probes.zookeeper import RECORD_BYTES, look_at_zookeeper
from emberkeep.diagnosis.clocks import clock_findings
from emberkeep.diagnosis.model import Severity
from emberkeep.diagnosis.zookeeper import zookeeper_findings
from tests.integration.zookeepers import Ensemble, connected, settings

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def ensemble(tmp_path: Path) -> AsyncIterator[Ensemble]:
    ensemble = Ensemble(tmp_path / "zookeeper")
    await ensemble.start()
    yield ensemble
    ensemble.stop()


async def test_a_healthy_server_and_one_that_grants_shorter_sessions(ensemble: Ensemble) -> None:
    layout = zookeeper_layout(Configuration())
    facts, clock = await look_at_zookeeper(settings(ensemble.hosts, session_timeout=10.0), layout)
    assert [finding.severity for finding in zookeeper_findings(facts)] == [Severity.OK, Severity.OK], facts
    assert facts.record_bytes == RECORD_BYTES
    assert [server.connections for server in facts.servers] == [60]
    assert clock is not None
    assert [finding.severity for finding in clock_findings([clock])] == [Severity.OK]

    facts, _ = await look_at_zookeeper(settings(ensemble.hosts, session_timeout=3600.0), layout)
    session_finding = zookeeper_findings(facts)[0]
    assert session_finding.severity is Severity.WARNING
    assert "maxSessionTimeout" in session_finding.fix

    session = ZooKeeperSession(settings(ensemble.hosts))
    session.start()
    try:
        await connected(session)
        assert [name for name in await session.children("/") if name.startswith("emberkeep-doctor")] == []
    finally:
        await session.close()


async def test_the_releases_of_registered_job_managers(ensemble: Ensemble) -> None:
    layout = zookeeper_layout(Configuration())
    facts, _ = await look_at_zookeeper(settings(ensemble.hosts), layout)
    assert facts.releases == {}, "no cluster has been there"
    session = ZooKeeperSession(settings(ensemble.hosts))
    session.start()
    try:
        await connected(session)
        for path in (layout.base.rpartition("/")[0], layout.base, layout.addresses):
            await session.create(path, b"")
        own = own_registration("10.0.0.1:8081", "jm-1")
        old = msgspec.structs.replace(own, address="10.0.0.2:8081", release="")
        for each in (own, old):
            await session.create(layout.address(each.address), encode_node(each), ephemeral=True, sequence=True)
        facts, _ = await look_at_zookeeper(settings(ensemble.hosts), layout)
        assert facts.releases == {"10.0.0.1:8081": __version__, "10.0.0.2:8081": ""}
    finally:
        await session.close()
