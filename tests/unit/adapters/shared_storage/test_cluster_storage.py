"""Whose the shared storage is: decided by its record and by what the job store knows of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.adapters.ha_blobs.place import BINDING_FILE, Binding, write_binding
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.event_logs import EVENT_LOGS
from emberkeep.adapters.shared_storage.marks import MARKS_FILE
from emberkeep.adapters.shared_storage.progress_files import PROGRESS
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.files.ownership import OWNER_FILE, OwnedByAnother, Unclaimed, read_owner
from emberkeep.base.ids import JobId
from emberkeep.jobs.leftovers import Kind, Mark

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)
NEW = StoreOrigin(identity="store-1", storage="", was_led=False)
OLD = StoreOrigin(identity="store-1", storage="", was_led=True)
EMPTIED = StoreOrigin(identity="store-2", storage="", was_led=False)


class Site:
    """State directories of several clusters, and one storage."""

    def __init__(self, directory: Path, mode: str) -> None:
        self.directory = directory
        self.storage = directory / "storage"
        self._mode = mode

    def layout(self, state: str = "state") -> StateLayout:
        texts = {STORAGE_DIRECTORY.key: str(self.storage), HA_TYPE.key: self._mode, HA_CLUSTER_ID.key: "north"}
        return StateLayout(self.directory / state, Configuration().with_texts(texts, "test"))

    def open(self, state: str = "state") -> ClusterStorage:
        return ClusterStorage(self.layout(state), lambda: 1000)

    def put(self, job_id: JobId = JOB) -> None:
        """Checkpoints of a job."""
        (self.layout().checkpoints / job_id / "query").mkdir(parents=True)

    def bound(self, origin: StoreOrigin = NEW) -> StoreOrigin:
        """``origin``, after a first start with this storage."""
        place_id = self.open().settle(origin)
        assert place_id
        return StoreOrigin(identity=origin.identity, storage=place_id, was_led=True)


@pytest.fixture(params=["embedded", "zookeeper"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(tmp_path, request.param)


def settled(storage: ClusterStorage, origin: StoreOrigin) -> ClusterStorage:
    storage.settle(origin)
    return storage


@pytest.mark.req("SAFE-4")
def test_the_first_start_on_an_empty_storage_claims_it_and_later_ones_know_it(site: Site) -> None:
    origin = site.bound()
    owner = read_owner(site.layout().storage_record)
    assert owner is not None
    assert (owner.belongs_to, owner.place_id) == ("store-1", origin.storage)
    site.put()
    again = site.open()
    assert again.settle(origin) == origin.storage
    assert again.problem() is None
    again.data.remove((Kind.CHECKPOINTS, JOB))
    assert not again.data.find()


@pytest.mark.req("SAFE-14")
def test_what_the_release_before_has_left_belongs_to_the_store_that_was_led_then(site: Site) -> None:
    site.put()
    storage = site.open()
    assert storage.settle(OLD)
    assert storage.problem() is None


def _remove(storage: ClusterStorage) -> None:
    storage.data.remove((Kind.CHECKPOINTS, JOB))


def _mark(storage: ClusterStorage) -> None:
    storage.write_marks([])


@pytest.mark.req("SAFE-6")
@pytest.mark.parametrize("change", [_remove, _mark])
@pytest.mark.parametrize("was_used", [True, False], ids=["used before", "without a record"])
def test_a_new_job_store_deletes_nothing_of_what_it_finds(
    site: Site, was_used: bool, change: Callable[[ClusterStorage], None]
) -> None:
    if was_used:
        site.bound()
    site.put()
    storage = site.open()
    assert storage.settle(EMPTIED) == ""
    with pytest.raises(Unclaimed) as caught:
        change(storage)
    assert "emberkeep storage" in (caught.value.hint or "")
    assert {(Kind.CHECKPOINTS, JOB)} == storage.data.find()


@pytest.mark.req("SAFE-6")
def test_a_store_with_another_storage_than_before_deletes_nothing(site: Site) -> None:
    origin = site.bound()
    site.put()
    moved = StoreOrigin(identity=origin.identity, storage="another", was_led=True)
    storage = settled(site.open(), moved)
    with pytest.raises(Unclaimed, match="used with a storage other than"):
        storage.data.remove((Kind.CHECKPOINTS, JOB))


@pytest.mark.req("SAFE-6")
def test_a_person_adopts_a_storage(site: Site) -> None:
    site.bound()
    site.put()
    storage = settled(site.open(), EMPTIED)
    place_id = storage.adopt()
    storage.data.remove((Kind.CHECKPOINTS, JOB))
    bound = StoreOrigin(identity="store-2", storage=place_id, was_led=True)
    assert settled(site.open(), bound).problem() is None
    first = StoreOrigin(identity="store-1", storage=place_id, was_led=True)
    site.put(OTHER)
    assert settled(site.open(), first).problem() is not None, "it is the other store's now"


def test_a_new_store_takes_over_an_empty_storage(site: Site) -> None:
    site.bound()
    assert site.open().settle(EMPTIED)


@pytest.mark.req("SAFE-5")
def test_two_embedded_clusters_do_not_share_a_storage(tmp_path: Path) -> None:
    site = Site(tmp_path, "embedded")
    origin = site.bound()
    site.put()
    for state in (EMPTIED, OLD):
        with pytest.raises(OwnedByAnother, match=f"{site.storage} is storage of cluster 'embedded-"):
            site.open("second").settle(state)
    assert settled(site.open(), origin).problem() is None


@pytest.mark.req("SAFE-5")
def test_folders_of_other_clusters_are_no_data_of_jobs(tmp_path: Path) -> None:
    Site(tmp_path, "zookeeper").put()
    site = Site(tmp_path, "embedded")
    storage = settled(site.open(), NEW)
    assert storage.problem() is None
    assert not storage.data.find()
    assert not storage.data.directories()


@pytest.mark.req("SAFE-5")
def test_checkpoints_of_a_job_with_a_graph_of_another_store_are_not_offered(tmp_path: Path) -> None:
    site = Site(tmp_path, "embedded")
    origin = site.bound()
    for store, job_id in (("store-1", JOB), ("store-9", OTHER)):
        graphs = site.layout().graphs / store
        graphs.mkdir(parents=True)
        (graphs / f"{job_id}.graph").touch()
        site.put(job_id)
    storage = settled(site.open(), origin)
    assert storage.data.directories() == {(Kind.CHECKPOINTS, JOB)}
    assert storage.data.find() == {(Kind.CHECKPOINTS, JOB), (Kind.CHECKPOINTS, OTHER), (Kind.GRAPH, OTHER)}


@pytest.mark.req("SAFE-5")
@pytest.mark.parametrize("kept", [(EVENT_LOGS,), (PROGRESS,), (EVENT_LOGS, PROGRESS)], ids="-".join)
def test_event_logs_and_progress_are_removed_apart_from_checkpoints_and_the_last_takes_the_directory_along(
    site: Site, kept: tuple[str, ...]
) -> None:
    storage = settled(site.open(), site.bound())
    place = site.layout().checkpoints / JOB
    checkpoints, event_logs = (Kind.CHECKPOINTS, JOB), (Kind.EVENT_LOGS, JOB)
    for first, second in ((checkpoints, event_logs), (event_logs, checkpoints)):
        site.put()
        (place / "record").touch()
        (place / "link").symlink_to(site.storage)
        for name in kept:
            (place / name / "1").mkdir(parents=True)
        assert storage.data.directories() == storage.data.find() == {checkpoints, event_logs}
        storage.data.remove(first)
        assert storage.data.find() == {second}
        assert set(kept) == {path.name for path in place.iterdir()} or second is checkpoints
        storage.data.remove(second)
        assert not place.exists()
        assert not storage.data.find()
    assert site.storage.exists()


def _file(path: Path) -> None:
    path.touch()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to(path.parents[1])


def _link_to_a_name_that_is_too_long(path: Path) -> None:
    path.symlink_to("a" * 300)


PLANTED = pytest.mark.parametrize("put", [_file, _pipe, _link, _link_to_a_name_that_is_too_long])


@pytest.mark.req("SAFE-2")
@PLANTED
def test_whatever_a_job_has_put_among_its_checkpoints_is_removed(site: Site, put: Callable[[Path], None]) -> None:
    storage = settled(site.open(), site.bound())
    place = site.layout().checkpoints / JOB
    (place / EVENT_LOGS).mkdir(parents=True)
    put(place / "planted")
    storage.data.remove((Kind.CHECKPOINTS, JOB))
    assert [path.name for path in place.iterdir()] == [EVENT_LOGS]


@pytest.mark.req("SAFE-2")
@PLANTED
def test_whatever_a_job_has_put_in_place_of_its_event_logs_is_removed(site: Site, put: Callable[[Path], None]) -> None:
    storage = settled(site.open(), site.bound())
    site.put()
    place = site.layout().checkpoints / JOB
    put(place / EVENT_LOGS)
    assert (Kind.EVENT_LOGS, JOB) in storage.data.directories()
    storage.data.remove((Kind.EVENT_LOGS, JOB))
    assert [path.name for path in place.iterdir()] == ["query"]


@pytest.mark.req("SAFE-2")
@PLANTED
def test_whatever_is_in_place_of_a_jobs_directory_is_removed(site: Site, put: Callable[[Path], None]) -> None:
    storage = settled(site.open(), site.bound())
    place = site.layout().checkpoints / JOB
    put(place)
    assert storage.data.directories() == {(Kind.CHECKPOINTS, JOB)}
    storage.data.remove((Kind.CHECKPOINTS, JOB))
    assert not os.path.lexists(place)


@pytest.mark.req("SAFE-2")
def test_a_link_in_place_of_a_jobs_directory_leads_to_nothing_that_is_removed(site: Site, tmp_path: Path) -> None:
    storage = settled(site.open(), site.bound())
    elsewhere = tmp_path / "elsewhere"
    for name in (EVENT_LOGS, "data"):
        (elsewhere / name).mkdir(parents=True)
    (site.layout().checkpoints / JOB).symlink_to(elsewhere)
    for kind in (Kind.EVENT_LOGS, Kind.CHECKPOINTS):
        storage.data.remove((kind, JOB))
    assert not storage.data.find()
    assert {path.name for path in elsewhere.iterdir()} == {EVENT_LOGS, "data"}


@pytest.mark.req("SAFE-2")
def test_a_storage_that_is_away_is_not_made_anew(site: Site) -> None:
    origin = site.bound()
    site.storage.rename(site.directory / "unmounted")
    storage = site.open()
    assert storage.settle(origin) == ""
    assert isinstance(storage.problem(), Unavailable)
    assert not site.storage.exists()
    (site.directory / "unmounted").rename(site.storage)
    assert storage.problem() is None, "it is there again"


@pytest.mark.req("SAFE-2")
def test_a_first_start_waits_for_its_storage(site: Site) -> None:
    site.directory.joinpath("storage").write_text("no directory")
    with pytest.raises(Unavailable):
        site.open().settle(NEW)


@pytest.mark.req("SAFE-1", "SAFE-6")
def test_an_empty_mount_point_is_not_claimed_by_a_job_store_that_was_used_with_a_storage(site: Site) -> None:
    bound = site.bound()
    origin = StoreOrigin(identity=bound.identity, storage=bound.storage, was_led=True)
    site.storage.rename(site.directory / "unmounted")
    site.storage.mkdir()
    storage = site.open()
    assert storage.settle(origin) == ""
    assert not list(site.storage.rglob(OWNER_FILE))
    assert storage.problem() is not None
    site.storage.rmdir()
    (site.directory / "unmounted").rename(site.storage)
    assert storage.problem() is None
    assert site.open().settle(origin) == origin.storage


@pytest.mark.req("SAFE-6")
@pytest.mark.parametrize("is_made", [True, False], ids=["empty", "gone"])
def test_a_storage_that_was_emptied_on_purpose_is_claimed_anew_on_a_persons_word(site: Site, is_made: bool) -> None:
    origin = site.bound()
    site.storage.rename(site.directory / "old")
    if is_made:
        site.storage.mkdir()
    storage = site.open()
    assert storage.settle(origin) == ""
    place_id = storage.adopt()
    assert place_id not in ("", origin.storage)
    assert storage.problem() is None


@pytest.mark.req("SAFE-2")
def test_a_storage_with_a_stale_handle_is_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = site.bound()
    origin = StoreOrigin(identity=bound.identity, storage=bound.storage, was_led=True)
    storage = site.open()

    def failing(look: Callable[..., object]) -> Callable[..., object]:
        def fail(path: Path, **more: object) -> object:
            if path.is_relative_to(site.storage):
                raise OSError(errno.ESTALE, "Stale file handle", str(path))
            return look(path, **more)

        return fail

    with monkeypatch.context() as stale:
        stale.setattr(Path, "stat", failing(Path.stat))
        stale.setattr(Path, "read_bytes", failing(Path.read_bytes))
        assert storage.settle(origin) == ""
    assert storage.problem() is None


@pytest.mark.req("SAFE-15")
@pytest.mark.parametrize(("data", "error"), [(b"torn", None), (encode_record("ownership", 2, b"{}"), NewerFormat)])
def test_an_unreadable_record(site: Site, data: bytes, error: type[EmberkeepError] | None) -> None:
    """A damaged one stops nothing but deletions, until a person adopts the storage; a newer one is left alone."""
    origin = site.bound()
    site.put()
    record = site.layout().storage_record / OWNER_FILE
    record.write_bytes(data)
    storage = site.open()
    if error is not None:
        with pytest.raises(error):
            storage.settle(origin)
        with pytest.raises(error):
            storage.adopt()
        assert record.read_bytes() == data
        return
    assert storage.settle(origin) == ""
    with pytest.raises(EmberkeepError):
        storage.data.remove((Kind.CHECKPOINTS, JOB))
    assert record.read_bytes() == data
    storage.adopt()
    storage.data.remove((Kind.CHECKPOINTS, JOB))


def test_marks_are_kept_and_damaged_ones_are_made_anew(site: Site) -> None:
    storage = settled(site.open(), NEW)
    assert storage.marks() == ()
    marks = (Mark(job_id=JOB, kind=Kind.CHECKPOINTS, since_ms=7, ended=True),)
    storage.write_marks(marks)
    assert storage.marks() == marks
    (site.layout().storage_record / MARKS_FILE).write_bytes(b"torn")
    assert storage.marks() == ()


def _extend(path: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Write a record as a newer release does that has added fields to it."""
    fields = msgspec.json.decode(decode_record(path.read_bytes(), kind, 1, where="test"))
    change(fields)
    path.write_bytes(encode_record(kind, 1, msgspec.json.encode(fields)))


@pytest.mark.req("SAFE-14")
def test_what_a_newer_release_has_added_is_kept_when_records_are_written_again(site: Site) -> None:
    site.bound()
    site.put()
    place = site.layout().storage_record
    marks = (Mark(job_id=JOB, kind=Kind.CHECKPOINTS, since_ms=7, ended=True),)
    settled(site.open(), site.bound()).write_marks(marks)
    _extend(place / OWNER_FILE, "ownership", lambda fields: fields.update(tier="gold"))
    _extend(place / MARKS_FILE, "storage-deletions", lambda fields: fields.update(looked="twice"))
    _extend(place / MARKS_FILE, "storage-deletions", lambda fields: fields["marks"][0].update(why="ended"))
    _extend(place / BINDING_FILE, "blob-place", lambda fields: fields.update(region="west"))
    storage = settled(site.open(), EMPTIED)
    storage.adopt()
    storage.write_marks((*marks, Mark(job_id=OTHER, kind=Kind.CHECKPOINTS, since_ms=8, ended=True)))
    write_binding(place / BINDING_FILE, Binding(location="/elsewhere"))
    owner = read_owner(place)
    assert owner is not None
    assert owner.belongs_to == EMPTIED.identity
    for name, added in ((OWNER_FILE, b"gold"), (MARKS_FILE, b"twice"), (MARKS_FILE, b"ended"), (BINDING_FILE, b"west")):
        assert added in (place / name).read_bytes()
    assert len(storage.marks()) == 2


@pytest.mark.req("SAFE-14")
def test_marks_of_a_newer_release_are_not_replaced(site: Site) -> None:
    storage = settled(site.open(), NEW)
    place = site.layout().storage_record / MARKS_FILE
    newer = encode_record("storage-deletions", 2, b"{}")
    place.write_bytes(newer)
    with pytest.raises(NewerFormat):
        storage.write_marks(())
    assert place.read_bytes() == newer
