"""Who owns a place: the first one that claims it while it is empty, and nobody else ever."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import encode_record
from emberkeep.base.files.operations import SystemFiles
from emberkeep.base.files.ownership import (
    OWNER_FILE,
    HasNoOwner,
    OwnedByAnother,
    OwnedPlaceKind,
    Owner,
    PlaceStanding,
    adopt,
    check,
    claim,
    decode_owner,
    encode_owner,
)
from tests.support.crashes.recorded import RecordedFiles


def _owner(
    cluster: str = "north", kind: OwnedPlaceKind = OwnedPlaceKind.STORAGE, holder: str = "", **more: Any
) -> Owner:
    return Owner(cluster_id=cluster, kind=kind, created_at_ms=1_700_000_000_000, holder=holder, **more)


@pytest.mark.req("SAFE-4")
def test_the_first_start_on_an_empty_place_writes_the_record(tmp_path: Path) -> None:
    first = claim(tmp_path, _owner(place_id="p1"))
    later = claim(tmp_path, msgspec.structs.replace(_owner(place_id="p2"), created_at_ms=5))
    assert first == later == _owner(place_id="p1")
    assert check(tmp_path, _owner()).standing is PlaceStanding.OWNED
    assert [path.name for path in tmp_path.iterdir()] == [OWNER_FILE]


@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize(
    "other",
    [_owner("south"), _owner(kind=OwnedPlaceKind.LOCAL_STATE), _owner(holder="tm-2")],
    ids=["cluster", "kind", "tm"],
)
def test_another_owners_place_is_refused(tmp_path: Path, other: Owner) -> None:
    claim(tmp_path, _owner())
    (tmp_path / "data").touch()
    for refused in (claim, adopt):
        with pytest.raises(OwnedByAnother, match="storage of cluster 'north'") as caught:
            refused(tmp_path, other)
        assert str(tmp_path) in str(caught.value)
        assert caught.value.hint
    assert check(tmp_path, other).standing is PlaceStanding.ANOTHERS
    assert check(tmp_path, _owner()).standing is PlaceStanding.OWNED


@pytest.mark.req("SAFE-4")
def test_data_without_a_record_is_refused_until_it_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(HasNoOwner, match=r"has data \(checkpoints\) but no ownership record"):
        claim(tmp_path, _owner())
    assert not (tmp_path / OWNER_FILE).exists()
    assert adopt(tmp_path, _owner()) == claim(tmp_path, _owner()) == _owner()


def test_what_is_no_data_does_not_count(tmp_path: Path) -> None:
    for name in ("lost+found", "lock", f".{OWNER_FILE}.0a1b.tmp"):
        (tmp_path / name).touch()
    with pytest.raises(Absent):
        _raise(check(tmp_path, _owner(), ignoring=["lock"]).problem)
    assert claim(tmp_path, _owner(), ignoring=["lock"]) == _owner()


def _raise(problem: EmberkeepError | None) -> None:
    if problem is not None:
        raise problem


@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", Damaged),
        (encode_owner(_owner())[:-1], Damaged),
        (encode_record("ownership", 1, b"{}"), Damaged),
        (encode_record("ownership", 2, b"{}"), NewerFormat),
    ],
    ids=["empty", "cut", "fields", "newer"],
)
def test_a_record_that_cannot_be_read_counts_as_nobodys(
    tmp_path: Path, data: bytes, error: type[EmberkeepError]
) -> None:
    (tmp_path / OWNER_FILE).write_bytes(data)
    for refused in (claim, adopt):
        with pytest.raises(error):
            refused(tmp_path, _owner())
    assert check(tmp_path, _owner()).standing is PlaceStanding.UNAVAILABLE
    assert (tmp_path / OWNER_FILE).read_bytes() == data


@pytest.mark.req("SAFE-4")
def test_a_place_that_is_away_is_unavailable_and_not_empty(tmp_path: Path) -> None:
    away = tmp_path / "mount" / "storage"
    for refused in (claim, adopt):
        with pytest.raises(Unavailable):
            refused(away, _owner())
    assert check(away, _owner()).standing is PlaceStanding.UNAVAILABLE


def test_fields_of_a_newer_release_are_ignored() -> None:
    fields = {**msgspec.to_builtins(_owner()), "colour": "green"}
    data = encode_record("ownership", 1, msgspec.json.encode(fields))
    assert decode_owner(data, where="here") == _owner()


@pytest.mark.req("SAFE-4")
def test_of_many_that_claim_an_empty_place_at_once_one_gets_it(tmp_path: Path) -> None:
    barrier, outcomes = threading.Barrier(8), list[object]()

    class Racing(SystemFiles):
        def link(
            self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
        ) -> None:
            barrier.wait(timeout=10)  # all have seen the place empty
            super().link(source, target, source_directory=source_directory, target_directory=target_directory)

    def attempt(cluster: str) -> None:
        try:
            outcomes.append(claim(tmp_path, _owner(cluster), files=Racing()).cluster_id)
        except OwnedByAnother as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt, args=(f"cluster-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(won) == 1
    assert [error.owner.cluster_id for error in outcomes if isinstance(error, OwnedByAnother)] == won * 7


def test_a_file_system_without_links_holds_a_record_as_well(tmp_path: Path) -> None:
    class NoLinks(SystemFiles):
        def link(
            self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
        ) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    assert claim(tmp_path, _owner(), files=NoLinks()) == _owner()
    with pytest.raises(OwnedByAnother):
        adopt(tmp_path, _owner("south"), files=NoLinks())


@pytest.mark.req("SAFE-4")
def test_a_crash_while_claiming_leaves_the_place_empty_or_owned(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    files = RecordedFiles(place)
    claim(place, _owner(), files=files)
    files.mark("owned")
    for crash in files.crashes(tmp_path / "after"):
        standing = check(crash.directory, _owner()).standing
        assert standing is PlaceStanding.OWNED or (standing is PlaceStanding.EMPTY and not crash.marks), crash
        assert claim(crash.directory, _owner()) == _owner()


def _states(tmp_path: Path) -> Callable[..., str]:
    def identity(name: str, **options: str) -> str:
        keys = {"type": HA_TYPE.key, "cluster": HA_CLUSTER_ID.key}
        texts = {keys[key]: value for key, value in options.items()}
        configuration = Configuration().with_texts(texts, "test")
        return cluster_id(configuration, StateLayout(tmp_path / name, configuration))

    return identity


@pytest.mark.req("SAFE-5")
def test_each_state_directory_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    identity = _states(tmp_path)
    assert identity("one") == identity("one")
    assert identity("one") != identity("two")
    assert identity("one", type="zookeeper", cluster="north") == "north"
    (tmp_path / "one" / "cluster-id").write_bytes(b"")
    with pytest.raises(Damaged):
        identity("one")
