"""A task manager's state gateway: off unless it is asked for, and where it keeps what it keeps."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.local_state_roots import local_state_root
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from emberkeep.local_state.model import Caller
from emberkeep.protocol.messages.executors import ListLocalState, LocalStateListed
from tests.support.contracts.local_copies import keep
from tests.support.state_slots import SLOT, begin_slot, own_states
from tests.support.working_places import working_place

JOB = JobId("1" * 32)


@pytest.mark.req("LOC-9")
async def test_it_is_off_by_default_and_leaves_no_file(tmp_path: Path) -> None:
    configuration = Configuration()
    place = working_place(tmp_path / "tm")
    layout = StateLayout(tmp_path, configuration)
    async with state_gateway_link(
        real_system(), configuration, place, layout, Services(), own_states(configuration, layout, place)
    ) as link:
        assert link is None
    assert list(tmp_path.iterdir()) == []


def recovery(directory: Path, switched_on: bool, root: Path | None = None) -> tuple[Configuration, StateLayout]:
    """``root``: where copies are to be kept."""
    texts = {"state.backend.local-recovery": str(switched_on).lower()}
    if root is not None:
        texts["taskmanager.state.local.root-dir"] = str(root)
    configuration = Configuration().with_texts(texts, "the test")
    return configuration, StateLayout(directory, configuration)


async def until_gone(directory: Path, services: Services) -> None:
    async def gone() -> None:
        while directory.exists():  # noqa: ASYNC110 - a thread deletes it
            await asyncio.sleep(0.01)

    async with asyncio.timeout(240.0):
        await services.run_until_done(gone())


@pytest.mark.req("LOC-5", "LOC-9")
@pytest.mark.parametrize("switched_on", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_copies_go_where_none_are_kept_any_more(tmp_path: Path, switched_on: bool, elsewhere: bool) -> None:
    place = working_place(tmp_path / "tm")
    default, other = place.directory.root / "state", tmp_path / "other"
    configuration, layout = recovery(tmp_path, switched_on, other if elsewhere else None)
    other = local_state_root(recovery(tmp_path, True, other)[0], place, real_system().clock).path
    own_state = open_state_store(f"{layout.checkpoints}/{JOB}")
    for root in (default, other):
        copies = DiskCopies(root)
        copies.open_copies()
        keep(copies, "q/state/0/0/1.delta", b"state", job=JOB, allocation=SLOT, root=own_state.location)
    going = {default, other} if elsewhere else {default}
    if switched_on:
        going -= {other if elsewhere else default}
    async with state_gateway_link(
        real_system(), configuration, place, layout, services := Services(), own_states(configuration, layout, place)
    ) as link:
        for root in going:
            await until_gone(root, services)
        for root in {default, other} - going:
            assert (root / "copies" / JOB / SLOT).exists()
        if link is not None:
            begin_slot(link, JOB, own_state)
            answer = await link.serve(ListLocalState(job_id=JOB, attempt=1))
            assert isinstance(answer, LocalStateListed)
            assert len(answer.holdings) == 1
    await services.cancel()


@pytest.mark.req("LOC-7")
async def test_a_directory_that_cannot_be_used_keeps_no_task_manager_from_starting(tmp_path: Path) -> None:
    (tmp_path / "no directory").touch()
    configuration, layout = recovery(tmp_path, True, tmp_path / "no directory" / "state")
    place = working_place(tmp_path / "tm")
    async with state_gateway_link(
        real_system(), configuration, place, layout, services := Services(), own_states(configuration, layout, place)
    ) as link:
        assert link is not None
        begin_slot(link, JOB, open_state_store(f"{layout.checkpoints}/{JOB}"))
        answer = await link.serve(ListLocalState(job_id=JOB, attempt=1))
        assert isinstance(answer, LocalStateListed)
        assert answer.holdings == ()
        assert link.upkeep.report().disk_failures == 1
    await services.cancel()


@pytest.mark.req("LOC-1", "LOC-2")
async def test_the_next_life_in_the_working_directory_has_the_copies_the_port_and_the_secret(tmp_path: Path) -> None:
    configuration = Configuration().with_texts({"state.backend.local-recovery": "true"}, "the test")
    place = working_place(tmp_path / "tm")
    layout = StateLayout(tmp_path, configuration)
    own_state = open_state_store(f"{layout.checkpoints}/{JOB}")
    copies = DiskCopies(place.directory.root / "state")
    copies.open_copies()
    for version in range(1, 4):
        keep(copies, f"q/state/0/0/{version}.delta", b"state", job=JOB, allocation=SLOT, root=own_state.location)
    known = set()
    for _ in range(2):
        async with state_gateway_link(
            real_system(),
            configuration,
            place,
            layout,
            services := Services(),
            own_states(configuration, layout, place),
        ) as link:
            assert link is not None
            known.add((link.port.address, begin_slot(link, JOB, own_state)))
            answer = await link.serve(ListLocalState(job_id=JOB, attempt=1))
            assert isinstance(answer, LocalStateListed)
            (held,) = answer.holdings
            assert (held.name, held.files, held.size, held.newest_version) == ("q/state/0/0", 3, 15, 3)
        await services.cancel()
    assert len(known) == 1


@pytest.mark.req("SEC-9")
async def test_it_shows_the_certificate_that_its_processes_know_in_its_next_life_too(tmp_path: Path) -> None:
    configuration = Configuration().with_texts({"state.backend.local-recovery": "true"}, "the test")
    place, layout = working_place(tmp_path / "tm"), StateLayout(tmp_path, configuration)
    shown = []
    for _ in range(2):
        async with state_gateway_link(
            real_system(),
            configuration,
            place,
            layout,
            services := Services(),
            own_states(configuration, layout, place),
        ) as link:
            assert link is not None
            host, port = link.port.address.rsplit(":", 1)
            pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)), timeout=60)
            shown.append(ssl.PEM_cert_to_DER_cert(pem))
            trust = Path(link.environ(Caller(job_id=JOB, attempt=1, allocation_id=SLOT))["EMBERKEEP_STATE_TRUST"])
            (known,) = load_pkcs12(trust.read_bytes(), None).additional_certs
            assert known.certificate.public_bytes(Encoding.DER) == shown[-1]
            assert trust.stat().st_mode & 0o777 == 0o644, "a job that runs as another user reads it"
        await services.cancel()
    assert len(set(shown)) == 1


@pytest.mark.req("SEC-9")
async def test_without_encryption_there_is_no_truststore(tmp_path: Path) -> None:
    texts = {"state.backend.local-recovery": "true", "security.encryption": "none"}
    configuration = Configuration().with_texts(texts, "the test")
    place, layout = working_place(tmp_path / "tm"), StateLayout(tmp_path, configuration)
    async with state_gateway_link(
        real_system(), configuration, place, layout, services := Services(), own_states(configuration, layout, place)
    ) as link:
        assert link is not None
        assert "EMBERKEEP_STATE_TRUST" not in link.environ(Caller(job_id=JOB, attempt=1, allocation_id=SLOT))
    await services.cancel()
