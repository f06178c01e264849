"""A state gateway's credential opens the job's own state, and no files of the cluster, the system or another job."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.client
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.adapters.state.spool import FileSpool
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.processes.os_user import OsUser
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.run_as import JobUsers
from emberkeep.daemons.taskmanager.state_gateways import durable_states, state_gateway_link
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.protocol.encoding.hadoop_token import KIND, encode
from emberkeep.taskmanager.state_gateway.fences import GatewayFences
from tests.integration.security.other_users import place_for_all
from tests.support.state_slots import begin_slot
from tests.support.working_places import working_place

pytestmark = pytest.mark.req("SEC-5")

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)
SECRET = b"the cluster's token"


@dataclass
class Attacker:
    """Code in an executor of job JOB, with the executor's credential."""

    address: str
    credential: str

    async def ask(self, method: str, path: str, query: str) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._ask, method, path, query)

    def _ask(self, method: str, path: str, query: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        with contextlib.closing(connection):
            token = encode(self.credential, KIND, self.address)
            connection.request(method, f"/webhdfs/v1/{JOB}/{quote(path)}?op={query}&delegation={token}")
            answer = connection.getresponse()
            return answer.status, answer.read()


def at(location: Path | str) -> str:
    return "at-" + base64.urlsafe_b64encode(str(location).encode()).decode().rstrip("=")


@contextlib.asynccontextmanager
async def attacked(
    directory: Path, roots: Iterable[Path] = (), storage: Path | None = None, user: OsUser | None = None
) -> AsyncIterator[tuple[Attacker, StateLayout]]:
    """Serve a gateway whose job JOB uses ``roots`` besides its own root. ``storage``: None for one in the state.

    ``user``: as whom the job runs; None: as the gateway's user.
    """
    texts = {
        "state.backend.local-recovery": "true",
        "security.encryption": "none",
        "emberkeep.state-dir": str(directory / "state"),
        "high-availability.storageDir": "" if storage is None else str(storage),
    }
    configuration = Configuration().with_texts(texts, "the test")
    layout = StateLayout(directory / "state", configuration)
    layout.root.mkdir(exist_ok=True)
    for job in (JOB, OTHER):
        (layout.checkpoints / job / "q" / "offsets").mkdir(parents=True)
        (layout.checkpoints / job / "q" / "offsets" / "0").write_bytes(b"an offset")
    layout.token_file.write_bytes(SECRET)
    place, services = working_place(directory / "tm"), Services()
    users = JobUsers({} if user is None else {"*": user}, "")
    async with state_gateway_link(
        real_system(),
        configuration,
        place,
        layout,
        services,
        durable_states(configuration, layout, place.directory, users),
    ) as link:
        assert link is not None
        own = open_state_store(f"{layout.checkpoints}/{JOB}")
        attacker = Attacker(
            link.port.address, await asyncio.to_thread(begin_slot, link, JOB, own, map(str, roots), user)
        )

        yield attacker, layout


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_the_token_file_is_not_read(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (attacker, layout):
        for root in (layout.root, tmp_path, "/"):
            name = str(layout.token_file.relative_to(root))
            status, body = await attacker.ask("GET", f"{at(root)}/{name}", "OPEN&step=data")
            assert (status, SECRET in body) == (400, False)


async def test_another_jobs_checkpoint_is_neither_read_nor_deleted(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (attacker, layout):
        before = files(layout.checkpoints / OTHER)
        for root, name in [
            (layout.checkpoints / OTHER, "q"),
            (layout.checkpoints / OTHER / "q", ""),
            (layout.checkpoints, f"{OTHER}/q"),
            (layout.storage, f"checkpoints/{OTHER}"),
        ]:
            assert (await attacker.ask("GET", f"{at(root)}/{name}", "LISTSTATUS"))[0] == 400
            assert (await attacker.ask("DELETE", f"{at(root)}/{name}", "DELETE&recursive=true"))[0] == 400
        assert files(layout.checkpoints / OTHER) == before


async def test_no_fence_is_planted(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (attacker, layout):
        for root in (layout.checkpoints / OTHER, layout.checkpoints / JOB, layout.checkpoints / JOB / ".attempts"):
            status, _ = await attacker.ask("PUT", f"{at(root)}/.attempts/999", "MKDIRS")
            assert status == 400
        for path in ("own/.attempts/999", f"own/../{OTHER}/.attempts/999"):
            assert (await attacker.ask("PUT", path, "MKDIRS"))[0] == 400
        assert not list(layout.checkpoints.rglob("999"))


async def test_working_directory_storage_and_system_stay_closed(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (attacker, layout):
        for place in (layout.graphs, layout.ha_blobs, layout.savepoints, tmp_path / "tm", tmp_path / "tm" / "gateway"):
            assert (await attacker.ask("GET", at(place), "LISTSTATUS"))[0] == 400
        for place in ("/proc", "/proc/self", "/proc/self/root", "/proc/self/cwd", "/etc", "/sys"):
            assert (await attacker.ask("GET", at(place), "LISTSTATUS"))[0] == 400


@pytest.mark.parametrize("kind", ["graphs", "blobs", "savepoints", "events", "audit", "clusters"])
async def test_the_shared_storage_stays_closed_even_if_a_script_names_it(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "shared" / kind
    place.mkdir(parents=True)
    (place / "file").write_bytes(SECRET)
    async with attacked(tmp_path, [place], tmp_path / "shared") as (attacker, _):
        assert (await attacker.ask("GET", at(place), "LISTSTATUS"))[0] == 400
        assert (await attacker.ask("DELETE", f"{at(place)}/file", "DELETE"))[0] == 400
    assert (place / "file").read_bytes() == SECRET


async def test_links_lead_nowhere_even_if_they_replace_a_directory(tmp_path: Path) -> None:
    root, linked = tmp_path / "mine" / "checkpoint", tmp_path / "elsewhere"
    async with attacked(tmp_path, [root, linked / "new"]) as (attacker, layout):
        root.mkdir(parents=True)
        assert (await attacker.ask("GET", at(root), "LISTSTATUS"))[0] == 200
        (root / "link").symlink_to(layout.root)
        status, body = await attacker.ask("GET", f"{at(root)}/link/token", "OPEN&step=data")
        assert (status == 200, SECRET in body) == (False, False)
        (root / "link").unlink()
        root.rmdir()
        root.symlink_to(layout.root)
        status, body = await attacker.ask("GET", f"{at(root)}/token", "OPEN&step=data")
        assert (status, SECRET in body) == (400, False)
        linked.symlink_to(layout.root)
        assert (await attacker.ask("PUT", f"{at(linked / 'new')}/q", "MKDIRS"))[0] == 400
        assert not (layout.root / "new").exists()


async def test_only_roots_that_the_driver_uses_are_opened(tmp_path: Path) -> None:
    mine, theirs, home = tmp_path / "mine", tmp_path / "theirs", tmp_path / "home"
    for directory in (mine, theirs, home):
        directory.mkdir()
    (theirs / "offsets").write_bytes(b"an offset of another job")
    (home / "id_ed25519").write_bytes(b"a private key")
    (mine / "link").symlink_to(theirs)
    async with attacked(tmp_path, [mine]) as (attacker, _):
        before = files(theirs), files(home)
        assert (await attacker.ask("PUT", f"{at(mine)}/q", "MKDIRS"))[0] == 200
        for root, name in [
            (theirs, "offsets"),
            (home, "id_ed25519"),
            (tmp_path, "home/id_ed25519"),
            (mine / "link", ""),
        ]:
            for method, query in [
                ("GET", "OPEN&step=data"),
                ("GET", "LISTSTATUS"),
                ("GET", "GETFILESTATUS"),
                ("GET", "GETCONTENTSUMMARY"),
                ("PUT", "MKDIRS"),
                ("PUT", "CREATE&overwrite=true&step=data"),
                ("PUT", f"RENAME&destination=/{JOB}/{at(mine)}/taken"),
                ("DELETE", "DELETE&recursive=true"),
            ]:
                assert (await attacker.ask(method, f"{at(root)}/{name}", query))[0] in (400, 403), (root, query)
        assert (await attacker.ask("PUT", f"{at(theirs)}/.attempts/999", "MKDIRS"))[0] == 400
        assert (await attacker.ask("GET", f"{at(mine)}/link/offsets", "OPEN&step=data"))[0] != 200
        assert (files(theirs), files(home)) == before


async def test_an_executor_does_not_name_roots(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    async with attacked(tmp_path) as (attacker, layout):
        record = f".attempts/1.roots/{hashlib.sha256(str(theirs).encode()).hexdigest()}"
        for root in ("own", at(layout.checkpoints / JOB)):
            assert (await attacker.ask("PUT", f"{root}/{record}", "MKDIRS"))[0] == 400
            assert (await attacker.ask("DELETE", f"{root}/.attempts/1.roots", "DELETE&recursive=true"))[0] == 400
        assert (await attacker.ask("PUT", "own/forged", "MKDIRS"))[0] == 200
        renamed = f"RENAME&destination=/{JOB}/own/{record}"
        assert (await attacker.ask("PUT", "own/forged", renamed))[0] == 400
        assert (await attacker.ask("GET", at(theirs), "LISTSTATUS"))[0] == 400


async def test_a_root_of_an_earlier_attempt_is_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "mine"
    root.mkdir()
    async with attacked(tmp_path, [root]) as (attacker, layout):
        own = open_state_store(f"{layout.checkpoints}/{JOB}")
        newer = Caller(job_id=JOB, attempt=2, allocation_id=DRIVER)
        await asyncio.to_thread(GatewayFences(lambda _: own, FileSpool).admit, newer)
        assert not (layout.checkpoints / JOB / ".attempts" / "1.roots").exists()
        assert (await attacker.ask("GET", at(root), "LISTSTATUS"))[0] == 403


async def test_executors_of_a_driver_of_the_previous_release_reach_its_locations(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (attacker, layout):
        (layout.checkpoints / JOB / ".attempts" / "1.roots").rmdir()  # such a driver has written its mark alone
        (tmp_path / "mine").mkdir()
        assert (await attacker.ask("GET", at(tmp_path / "mine"), "LISTSTATUS"))[0] == 200
        assert (await attacker.ask("GET", at(layout.root), "LISTSTATUS"))[0] == 400


async def test_own_checkpoints_and_locations_of_the_script_stay_open(tmp_path: Path) -> None:
    async with attacked(tmp_path, [tmp_path / "mine"]) as (attacker, _):
        (tmp_path / "mine").mkdir()
        assert (await attacker.ask("GET", "own/q/offsets/0", "OPEN&step=data")) == (200, b"an offset")
        assert (await attacker.ask("PUT", f"{at(tmp_path / 'mine')}/q", "MKDIRS"))[0] == 200


@pytest.mark.req("SEC-13")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user: run this test as root")
async def test_a_job_of_another_user_reaches_what_its_user_may_reach_and_nothing_else() -> None:
    user = OsUser("somebody", 64001, 64001, (64001,), "/", "/bin/sh")
    with place_for_all() as place:
        (place / "work").mkdir(mode=0o711)
        roots = own, theirs = place / "own", place / "theirs"
        for root in roots:
            root.mkdir(mode=0o755)
            (root / "file").write_bytes(SECRET)
            (root / "file").chmod(0o600)
        for path in (own, own / "file"):
            os.chown(path, user.uid, user.gid)
        async with attacked(place / "work", roots, user=user) as (attacker, layout):
            for path in (layout.checkpoints / JOB).glob("**/*"):
                os.chown(path, user.uid, user.gid)
            os.chown(layout.checkpoints / JOB, user.uid, user.gid)
            for path in (layout.storage, layout.checkpoints):
                path.chmod(0o711)
            before = files(theirs)
            assert await attacker.ask("GET", f"{at(own)}/file", "OPEN&step=data") == (200, SECRET)
            assert (await attacker.ask("DELETE", f"{at(own)}/file", "DELETE"))[0] == 200
            status, body = await attacker.ask("GET", f"{at(theirs)}/file", "OPEN&step=data")
            assert (status // 100 in (4, 5), SECRET in body) == (True, False)
            for name in ("file", ""):
                assert (await attacker.ask("DELETE", f"{at(theirs)}/{name}", "DELETE&recursive=true"))[0] // 100 in (
                    4,
                    5,
                )
            assert (await attacker.ask("PUT", f"{at(theirs)}/planted", "MKDIRS"))[0] // 100 in (4, 5)
            assert files(theirs) == before
            assert not (theirs / "planted").exists()
