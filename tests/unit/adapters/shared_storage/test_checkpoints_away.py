"""A node without the file system of checkpoints makes no others in their place, and takes none for lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from aiohttp import ClientSession

from emberkeep.adapters.shared_storage.checkpoint_place import require_checkpoint_place
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.directories.tree import FirstStart
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.security import ENCRYPTION
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Unavailable
from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.daemons.driver.storage import open_state_of
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from emberkeep.spark import availability
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions import states as function_states
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries import checkpoint_places
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from tests.support.state_slots import begin_slot, own_states
from tests.support.working_places import working_place
from tests.unit.formats.golden_samples import CHECKPOINT, DRIVER_SPEC
from tests.unit.spark.files.files_on_disk import FilesOnDisk, files_on_disk

JOB = JobId("1" * 32)

# Arguments: directory, job. An attempt's driver is asked to write its first batch; prints the HTTP status.
DRIVER = """
import os, sys
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, build_opener

from emberkeep.daemons.driver.gateway import serve_own_gateway

directory, job = sys.argv[1:]
os.environ["EMBERKEEP_STATE_CREDENTIAL"] = "secret"
serve_own_gateway(SimpleNamespace(
    checkpoint_root=f"{directory}/storage/checkpoints/{job}", checkpoints_recorded=False, checkpoints=(),
    directory=directory, graph=SimpleNamespace(job_id=job), tls=None, attempt=2, host="here"
))
base = f"http://{os.environ['EMBERKEEP_STATE_GATEWAY']}/webhdfs/v1/{job}/own/offsets"
try:
    with build_opener().open(Request(f"{base}?op=MKDIRS&user.name=secret", method="PUT"), timeout=120) as answer:
        print(answer.status)
except HTTPError as error:
    print(error.code)
"""


@pytest.mark.req("SAFE-1")
def test_a_driver_whose_mount_is_away_makes_no_tree_on_its_own_disk(tmp_path: Path) -> None:
    def ask() -> str:
        arguments = [sys.executable, "-c", DRIVER, str(tmp_path), JOB]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    storage = tmp_path / "storage"
    storage.mkdir()  # the mount point
    assert ask() == "503", "it is to be asked again"
    assert list(storage.iterdir()) == []
    (storage / "checkpoints").mkdir()
    assert ask() == "200"
    assert (storage / "checkpoints" / JOB / "offsets").is_dir()


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_an_executor_whose_mount_is_away_is_to_ask_again(tmp_path: Path) -> None:
    configuration = Configuration().with_texts({LOCAL_RECOVERY.key: "true", ENCRYPTION.key: "none"}, "test")
    layout = StateLayout(tmp_path, configuration)
    place = working_place(tmp_path / "tm")
    own_state = open_state_store(f"{layout.checkpoints}/{JOB}")
    own_state.make_directory("q/state")
    elsewhere = tmp_path / "elsewhere"
    async with state_gateway_link(
        real_system(), configuration, place, layout, services := Services(), own_states(configuration, layout, place)
    ) as link:
        assert link is not None
        credential = begin_slot(link, JOB, own_state)
        base = f"http://{link.port.address}/webhdfs/v1/{JOB}/own"
        calls = (
            ("GET", f"{base}/q/state?op=GETFILESTATUS"),
            ("GET", f"{base}/q/state?op=LISTSTATUS"),
            ("GET", f"{base}/q/state/1.delta?op=GETFILESTATUS"),
            ("PUT", f"{base}/q/state/0?op=MKDIRS"),
        )

        async with ClientSession() as session:

            async def statuses() -> list[int]:
                found = []
                for method, url in calls:
                    async with session.request(method, f"{url}&user.name={credential}") as answer:
                        found.append(answer.status)
                return found

            assert await statuses() == [200, 200, 404, 200]
            layout.storage.rename(elsewhere)
            # That a directory exists is remembered for some seconds, which decides nothing.
            assert (await statuses())[1:] == [503] * 3, "neither absent nor refused for good"
            layout.storage.mkdir()  # as a mount point
            assert (await statuses())[1:] == [503] * 3
            assert list(layout.storage.iterdir()) == []
            layout.storage.rmdir()
            elsewhere.rename(layout.storage)
            assert await statuses() == [200, 200, 404, 200]
    await services.cancel()


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("first_start", FirstStart)
def test_a_root_that_was_there_is_not_made_anew(tmp_path: Path, first_start: FirstStart) -> None:
    (source := tmp_path / "source").write_bytes(b"x")
    (root := tmp_path / "shared" / "root").mkdir(parents=True)
    store = DirectoryState(root, first_start=first_start)
    store.create("f", source, overwrite=False)
    root.parent.rename(tmp_path / "elsewhere")
    for parent_is_there in (False, True):
        if parent_is_there:
            root.parent.mkdir()
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.status("f"),
            lambda: store.listing(""),
            lambda: store.read("f", 0, None),
            lambda: store.make_directory(""),
            lambda: store.create("g", source, overwrite=True),
            lambda: store.rename("f", "g", overwrite=True),
            lambda: store.delete("f", recursive=False),
            lambda: store.delete("", recursive=True),
        )
        for call in calls:
            with pytest.raises(Unavailable, match="does not exist now"):
                call()
        assert not root.exists()
    store.close()


@pytest.mark.req("SAFE-1")
def test_who_makes_a_root_at_the_first_start(tmp_path: Path) -> None:
    def make(name: str, first_start: FirstStart) -> None:
        DirectoryState(tmp_path / name, first_start=first_start).make_directory("d")

    for name in ("beside", "not/made"):
        with pytest.raises(Unavailable):
            make(name, FirstStart.ELSEWHERE)
    with pytest.raises(Unavailable, match="not does not exist"):
        make("not/made", FirstStart.IN_PLACE)
    assert list(tmp_path.iterdir()) == []
    make("beside", FirstStart.IN_PLACE)
    make("not/made", FirstStart.ANYWHERE)


# --- the directory of all jobs' checkpoints ---------------------------------------------------------------------------


@pytest.fixture(params=["embedded", "zookeeper"])
def layout(tmp_path: Path, request: pytest.FixtureRequest) -> StateLayout:
    texts = {HA_TYPE.key: request.param, HA_CLUSTER_ID.key: "north"}
    return StateLayout(tmp_path, Configuration().with_texts(texts, "test"))


def settled(layout: StateLayout, storage: str = "", *, was_led: bool = True) -> tuple[ClusterStorage, str]:
    opened = ClusterStorage(layout, lambda: 1)
    return opened, opened.settle(StoreOrigin(identity="1", storage=storage, was_led=was_led))


@pytest.mark.req("SAFE-1", "SAFE-4")
def test_the_first_leader_makes_the_directory_of_checkpoints_and_nobody_makes_it_again(layout: StateLayout) -> None:
    first, place_id = settled(layout, was_led=False)
    assert first.has_recorded_checkpoints
    require_checkpoint_place(layout.checkpoints, "here", is_recorded=True)
    layout.checkpoints.rename(layout.root / "unmounted")
    for is_mount_point in (False, True):
        if is_mount_point:
            layout.checkpoints.mkdir()
        again, _ = settled(layout, place_id)
        assert again.has_recorded_checkpoints
        with pytest.raises(Unavailable, match="checkpoints"):
            require_checkpoint_place(layout.checkpoints, "here", is_recorded=True)
    layout.checkpoints.rmdir()
    (layout.root / "unmounted").rename(layout.checkpoints)
    require_checkpoint_place(layout.checkpoints, "here", is_recorded=True)


@pytest.mark.req("SAFE-6")
def test_a_person_says_that_checkpoints_were_removed_on_purpose(layout: StateLayout) -> None:
    storage, _ = settled(layout, was_led=False)
    (layout.checkpoints / OWNER_FILE).unlink()
    layout.checkpoints.rmdir()
    storage.adopt()
    require_checkpoint_place(layout.checkpoints, "here", is_recorded=True)


@pytest.mark.req("SAFE-14")
def test_checkpoints_of_the_release_before_get_their_record(layout: StateLayout) -> None:
    (layout.checkpoints / JOB / "query").mkdir(parents=True)
    storage, _ = settled(layout)
    assert storage.has_recorded_checkpoints
    require_checkpoint_place(layout.checkpoints, "here", is_recorded=True)
    assert (layout.checkpoints / JOB / "query").is_dir()


@pytest.mark.req("SAFE-4")
def test_a_storage_that_is_not_settled_takes_jobs_all_the_same(layout: StateLayout) -> None:
    """Data without a record lies there, and no job has kept checkpoints."""
    folder = "folder" if layout.configuration[HA_TYPE] == "embedded" else ""
    (layout.graphs / folder).mkdir(parents=True)
    (layout.graphs / folder / f"{JOB}.graph").touch()
    storage, place_id = settled(layout, was_led=False)
    assert (place_id, storage.has_recorded_checkpoints) == ("", False)
    require_checkpoint_place(layout.checkpoints, "here", is_recorded=False)


@pytest.mark.req("SAFE-1", "SAFE-6")
def test_a_leader_with_another_job_store_does_not_make_the_directory_again(layout: StateLayout) -> None:
    settled(layout, was_led=False)
    layout.checkpoints.rename(layout.root / "unmounted")
    (folder := layout.graphs / "folder" if layout.configuration[HA_TYPE] == "embedded" else layout.graphs).mkdir(
        parents=True
    )
    (folder / f"{JOB}.graph").touch()
    storage, place_id = settled(layout, "another")
    assert (place_id, storage.has_recorded_checkpoints) == ("", True)
    assert not layout.checkpoints.exists()


# --- what a job has kept ----------------------------------------------------------------------------------------------


@pytest.mark.req("SAFE-1")
def test_a_checkpoint_that_has_batches_is_never_made_by_a_driver(tmp_path: Path) -> None:
    """Neither the job's own nor one that the script has named; others are, as Spark itself makes them."""
    root, named = tmp_path / "checkpoints" / JOB, tmp_path / "mount" / "named"
    root.parent.mkdir()
    spec = msgspec.structs.replace(DRIVER_SPEC, checkpoint_root=str(root), checkpoints=())
    begun = msgspec.structs.replace(
        spec,
        checkpoints=(
            msgspec.structs.replace(CHECKPOINT, location=f"{root}/query-1"),
            msgspec.structs.replace(CHECKPOINT, location=f"file:{named}"),
        ),
    )
    for location in (root, named):
        state = open_state_of(begun, str(location))
        for call in (state.make_directory, state.status):
            with pytest.raises(Unavailable):
                call("")
        with pytest.raises(Absent):
            open_state_of(spec, str(location)).status("")
        open_state_of(spec, str(location)).make_directory("")
        open_state_of(begun, str(location)).make_directory("offsets")


class Mount:
    """The directory of all jobs' checkpoints, which comes back at the second look after it went away."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = directory / "checkpoints"
        self.place.mkdir()
        self._away = directory / "away"
        monkeypatch.setattr(availability, "time", SimpleNamespace(sleep=self._pass))
        self.pauses = 0

    def unmount(self) -> None:
        self.place.rename(self._away)
        self.pauses = 0

    def _pass(self, _: float) -> None:
        self.pauses += 1
        if self.pauses == 2:
            self._away.rename(self.place)

    def require(self) -> None:
        require_checkpoint_place(self.place, "here", is_recorded=False)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mount:
    return Mount(tmp_path, monkeypatch)


@pytest.mark.req("SAFE-1", "SAFE-19")
def test_functions_do_not_begin_empty_while_their_states_are_away(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(function_states, "HadoopFiles", lambda _: FilesOnDisk())

    def attempt(number: int) -> FunctionStates:
        notices = Notices()
        places = CheckpointPlaces(mount.require, (), notices)
        return FunctionStates(f"{mount.place}/{JOB}", JOB, number, DirectLocations(), places, lambda: None, notices)

    attempt(1).keep(None, "/s/1", 1, {"sink": b"1"})
    mount.unmount()
    assert attempt(2).begin_with(None, lambda: None) == {"sink": b"1"}
    assert "emberkeep: waiting for the job's checkpoints: " in capsys.readouterr().err
    mount.unmount()
    with pytest.raises(Unavailable):
        attempt(2).keep(None, "/s/2", 2, {"sink": b"2"})
    assert not mount.place.exists(), "nothing is written where it would be hidden"


@pytest.mark.req("SAFE-1")
def test_a_query_waits_for_a_checkpoint_that_has_batches(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint_places, "HadoopFiles", lambda _: files_on_disk())
    query = mount.place / "query"
    (query / "commits").mkdir(parents=True)
    places = CheckpointPlaces(mount.require, {str(query)}, Notices())
    mount.unmount()
    places.wait_for(None, str(query), str(query))
    assert mount.pauses == 2
    assert f"{query} does not exist, but earlier attempts have committed" in capsys.readouterr().err
    places.wait_for(None, f"{mount.place}/new", f"{mount.place}/new")


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("scheme", ["", "s3://bucket"])
def test_a_checkpoint_without_commits_may_be_a_bare_mount_point(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it is no directory of this node. Who makes the directory of the commits means it."""
    pauses = 0

    def make_at_the_second_look(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            (tmp_path / "commits").mkdir()

    monkeypatch.setattr(availability, "time", SimpleNamespace(sleep=make_at_the_second_look))
    monkeypatch.setattr(checkpoint_places, "HadoopFiles", lambda _: files_on_disk())
    location = f"{scheme}{tmp_path}"
    CheckpointPlaces(lambda: None, {location}, Notices()).wait_for(None, location, str(tmp_path))
    assert pauses == 2
    said = capsys.readouterr().err
    assert f"{location} has no commit log, but earlier attempts have committed" in said
    assert f"create the directory {location}/commits" in said
