"""A place for BLOBs apart from the storage: whose it is, and what lies there that no job needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.ha_blobs.owned import OwnedBlobs
from emberkeep.adapters.ha_blobs.place import BINDING_FILE, BlobPlace
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import encode_record
from emberkeep.base.files.ownership import OWNER_FILE, OwnedByAnother, OwnedPlaceKind, Unclaimed, read_owner
from emberkeep.client.clusters.private_storage import PrivateStorage
from tests.support.contracts.local_store import ONE, OTHER, blob

NEW = StoreOrigin(identity="store-1", storage="", was_led=False)
UPGRADED = StoreOrigin(identity="store-1", storage="", was_led=True)


class Site:
    """One place for BLOBs, and clusters with a state directory and a storage each."""

    def __init__(self, directory: Path, mode: str = "embedded") -> None:
        self.directory = directory
        self.blobs = directory / "mount" / "blobs"
        self._mode = mode

    def layout(self, cluster: str = "north") -> StateLayout:
        texts = {
            STORAGE_DIRECTORY.key: str(self.storage(cluster)),
            HA_TYPE.key: self._mode,
            HA_CLUSTER_ID.key: cluster,
            BLOB_HA_STORAGE.key: str(self.blobs),
        }
        return StateLayout(self.directory / cluster, Configuration().with_texts(texts, "test"))

    def storage(self, cluster: str) -> Path:
        return self.directory / f"storage-of-{cluster}"

    def start(self, origin: StoreOrigin = NEW, cluster: str = "north") -> ClusterStorage:
        storage = ClusterStorage(self.layout(cluster), lambda: 1000)
        storage.settle(origin)
        return storage

    def again(self, storage: ClusterStorage, cluster: str = "north") -> ClusterStorage:
        """A later start of the same job store."""
        return self.start(StoreOrigin(identity="store-1", storage=storage.place_id, was_led=False), cluster)

    def put(self, job_id: str = ONE) -> None:
        """BLOBs of a job, by a release without records."""
        (self.blobs / job_id).mkdir(parents=True)
        (self.blobs / job_id / f"p-{'1' * 64}").write_bytes(b"x")

    def unmount(self) -> None:
        self.blobs.parent.rename(self.directory / "unmounted")
        self.blobs.mkdir(parents=True)

    def mount(self) -> None:
        self.blobs.rmdir()
        self.blobs.parent.rmdir()
        (self.directory / "unmounted").rename(self.blobs.parent)


@pytest.fixture(params=["embedded", "zookeeper"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(tmp_path, request.param)


@pytest.mark.req("SAFE-4")
def test_the_first_start_claims_an_empty_place_and_later_ones_know_it(site: Site) -> None:
    storage = site.start()
    owner = read_owner(site.blobs)
    assert owner is not None
    assert (owner.kind, owner.cluster_id) == (OwnedPlaceKind.BLOBS, storage.cluster)
    assert owner.belongs_to == storage.place_id
    site.put()
    assert site.again(storage).blobs.problem() is None
    assert read_owner(site.blobs) == owner


@pytest.mark.req("SAFE-14")
def test_what_the_release_before_has_left_belongs_to_the_store_that_was_led_then(site: Site) -> None:
    site.put()
    storage = site.start(UPGRADED)
    assert storage.blobs.problem() is None
    assert read_owner(site.blobs) is not None


@pytest.mark.req("SAFE-14")
def test_an_upgrade_takes_the_place_over_when_it_is_there_again(site: Site) -> None:
    site.put()
    record = site.blobs / OWNER_FILE
    record.symlink_to(record)  # reading it is an error, also for root
    storage = site.start(UPGRADED)
    assert isinstance(storage.blobs.problem(), Unavailable)
    record.unlink()
    assert site.again(storage).blobs.problem() is None


@pytest.mark.req("SAFE-4", "SAFE-6")
def test_data_without_a_record_is_not_taken_over_by_a_cluster_that_has_used_another_place(site: Site) -> None:
    first = site.layout()
    texts = {option.key: first.configuration[option] for option in (STORAGE_DIRECTORY, HA_TYPE, HA_CLUSTER_ID)}
    before = ClusterStorage(StateLayout(first.root, Configuration().with_texts(texts, "test")), lambda: 1000)
    before.settle(NEW)
    site.put()
    storage = site.again(before)
    problem = storage.blobs.problem()
    assert isinstance(problem, Unclaimed)
    assert "emberkeep storage" in (problem.hint or "")
    assert not (site.blobs / OWNER_FILE).exists()
    assert storage.problem() is None, "the storage itself is in order"
    storage.blobs.adopt()
    assert storage.blobs.problem() is None


@pytest.mark.req("SAFE-4", "SAFE-6")
def test_a_new_cluster_does_not_take_over_data_without_a_record(site: Site) -> None:
    site.put()
    storage = site.start(NEW)
    assert isinstance(storage.blobs.problem(), Unclaimed)
    assert isinstance(site.again(storage).blobs.problem(), Unclaimed), "nor at its second start"


@pytest.mark.req("SAFE-5")
def test_two_clusters_do_not_share_a_place(site: Site) -> None:
    first = site.start()
    record = (site.blobs / OWNER_FILE).read_bytes()
    for origin in (NEW, UPGRADED):
        with pytest.raises(OwnedByAnother, match=f"{site.blobs} is blobs of cluster '{first.cluster}'"):
            site.start(origin, "south")
    assert (site.blobs / OWNER_FILE).read_bytes() == record


@pytest.mark.req("SAFE-5", "SAFE-6")
def test_a_namesake_with_another_storage_deletes_nothing(tmp_path: Path) -> None:
    """With ZooKeeper people choose the id of a cluster, and two may choose the same."""
    site = Site(tmp_path, "zookeeper")
    site.start()
    site.put()
    site.storage("north").rename(tmp_path / "elsewhere")
    namesake = site.start(StoreOrigin(identity="store-2", storage="", was_led=False))
    assert namesake.problem() is None
    with pytest.raises(Unclaimed, match="used with a different storage"):
        namesake.blobs.require()
    namesake.blobs.adopt()
    namesake.blobs.require()


@pytest.mark.req("SAFE-6")
def test_nothing_is_deleted_while_the_storage_is_not_settled(site: Site) -> None:
    site.start()
    site.put()
    (site.layout().checkpoints / ONE / "query").mkdir(parents=True)
    emptied = site.start(StoreOrigin(identity="store-2", storage="", was_led=False))
    with pytest.raises(Unclaimed, match="used with another job store"):
        emptied.blobs.require()
    emptied.adopt()
    emptied.blobs.require()


@pytest.mark.req("SAFE-1", "SAFE-6")
def test_an_empty_mount_point_is_not_claimed_anew(site: Site) -> None:
    first = site.start()
    site.put()
    site.unmount()
    storage = site.again(first)
    for _ in range(2):
        assert isinstance(storage.blobs.problem(), Unavailable)
        with pytest.raises(Unavailable, match="is empty or does not exist"):
            storage.blobs.require_there()
    assert not list(site.blobs.iterdir())
    site.mount()
    storage.blobs.require_there()
    storage.blobs.require()


@pytest.mark.req("SAFE-6")
def test_a_place_that_was_emptied_on_purpose_is_claimed_on_a_persons_word(site: Site) -> None:
    first = site.start()
    site.unmount()
    storage = site.again(first)
    assert storage.blobs.problem() is not None
    storage.blobs.adopt()
    assert site.again(first).blobs.problem() is None


@pytest.mark.req("SAFE-6")
def test_a_place_that_was_exchanged_for_another_one_of_the_cluster_deletes_nothing(site: Site) -> None:
    first = site.start()
    record = site.blobs / OWNER_FILE
    site.put()
    other = Site(site.directory / "copy", site._mode)
    other.directory.mkdir()
    record.unlink()
    (site.layout().storage_record / BINDING_FILE).rename(site.directory / "binding")
    site.again(first).blobs.adopt()  # made anew
    (site.directory / "binding").rename(site.layout().storage_record / BINDING_FILE)
    with pytest.raises(Unclaimed, match="used with another HA store"):
        site.again(first).blobs.require()


@pytest.mark.req("SAFE-15", "SAFE-14")
@pytest.mark.parametrize(("data", "error"), [(b"torn", Damaged), (encode_record("ownership", 2, b"{}"), NewerFormat)])
def test_an_unreadable_record(site: Site, data: bytes, error: type[EmberkeepError]) -> None:
    """A damaged one stops nothing but deletions, until a person adopts the place; a newer one is left alone."""
    first = site.start()
    site.put()
    (site.blobs / OWNER_FILE).write_bytes(data)
    if error is NewerFormat:
        with pytest.raises(NewerFormat):
            site.again(first)
        assert (site.blobs / OWNER_FILE).read_bytes() == data
        return
    storage = site.again(first)
    storage.blobs.require_there()
    with pytest.raises(Damaged):
        storage.blobs.require()
    storage.blobs.adopt()
    storage.blobs.require()


@pytest.mark.req("SAFE-15")
def test_a_damaged_note_of_the_place_lets_nothing_be_deleted_until_a_person_says_so(site: Site) -> None:
    first = site.start()
    (site.layout().storage_record / BINDING_FILE).write_bytes(b"torn")
    storage = site.again(first)
    assert isinstance(storage.blobs.problem(), Damaged)
    storage.blobs.adopt()
    assert site.again(first).blobs.problem() is None


def test_blobs_in_the_storage_go_by_its_record(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path, Configuration())
    storage = ClusterStorage(layout, lambda: 1000)
    storage.settle(NEW)
    same = Configuration().with_texts({BLOB_HA_STORAGE.key: str(layout.storage)}, "test")
    for place in (storage.blobs, BlobPlace(StateLayout(tmp_path, same), storage, lambda: 1000)):
        assert place.location == ""
        place.require()
        place.require_there()


@pytest.mark.req("SAFE-4")
def test_a_run_of_its_own_removes_its_place_and_no_other_one(tmp_path: Path) -> None:
    shared = Configuration().with_texts({BLOB_HA_STORAGE.key: (tmp_path / "blobs").as_uri()}, "test")
    for name, cluster in (("run-1", tmp_path / "run-1"), ("run-2", tmp_path / "another")):
        own = shared.with_texts({BLOB_HA_STORAGE.key: str(tmp_path / "blobs" / "runs" / name)}, "test")
        ClusterStorage(StateLayout(cluster, own), lambda: 1000).settle(NEW)
    for name in ("run-1", "run-2"):
        PrivateStorage(shared).remove(tmp_path / name)
    assert [path.name for path in (tmp_path / "blobs" / "runs").iterdir()] == ["run-2"]


# --- the store ------------------------------------------------------------------------------------------------------


def _file(directory: Path) -> Path:
    file = directory / "file"
    file.write_bytes(blob("a")[1])
    return file


@pytest.mark.anyio
@pytest.mark.req("SAFE-1", "SAFE-4")
async def test_an_absent_mount_is_neither_an_empty_store_nor_written_to(site: Site) -> None:
    first = site.start()
    key, file = blob("a")[0], _file(site.directory)
    await OwnedBlobs(DirectoryBlobs(site.blobs), first.blobs).put(ONE, key, file)
    site.unmount()
    store = OwnedBlobs(DirectoryBlobs(site.blobs), site.again(first).blobs)
    copy = site.directory / "copy"
    for use in (
        store.listing(),
        store.size(ONE, key),
        store.fetch(ONE, key, copy),
        store.put(OTHER, key, file),
        store.delete(ONE, [key]),
        store.delete_owner(ONE),
    ):
        with pytest.raises(Unavailable, match="is empty or does not exist"):
            await use
    assert not list(site.blobs.iterdir())
    site.mount()
    assert set(await store.listing()) == {ONE}


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_mount_that_goes_while_it_is_used_hides_nothing(site: Site) -> None:
    store = OwnedBlobs(DirectoryBlobs(site.blobs), site.start().blobs)
    key = blob("a")[0]
    await store.put(ONE, key, _file(site.directory))
    site.unmount()
    for use in (store.size(ONE, key), store.fetch(ONE, key, site.directory / "copy"), store.listing()):
        with pytest.raises(Unavailable):
            await use


def _of_another(site: Site, storage: ClusterStorage) -> None:
    (site.blobs / OWNER_FILE).unlink()
    with pytest.raises(EmberkeepError):
        storage.blobs.require()  # it was there: nothing is claimed
    site.start(UPGRADED, "south")


def _without_record(site: Site, storage: ClusterStorage) -> None:
    (site.blobs / OWNER_FILE).unlink()


@pytest.mark.anyio
@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize("change", [_of_another, _without_record])
async def test_only_the_owner_deletes(site: Site, change: Callable[[Site, ClusterStorage], None]) -> None:
    storage = site.start()
    inner = DirectoryBlobs(site.blobs)
    store, key = OwnedBlobs(inner, storage.blobs), blob("a")[0]
    for owner in (ONE, OTHER):
        await store.put(owner, key, _file(site.directory))
    await store.delete_owner(OTHER)
    change(site, storage)
    for use in (store.delete(ONE, [key]), store.delete_owner(ONE)):
        with pytest.raises(EmberkeepError):
            await use
    assert set(await inner.listing()) == {ONE}
