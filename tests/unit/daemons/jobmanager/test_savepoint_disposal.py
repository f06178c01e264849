"""Who disposes of a savepoint deletes what its manifest names, and nothing that others have put beside it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.errors import Absent, Conflict, Fatal, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.daemons.jobmanager import savepoint_store
from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.manifest import (
    DELETING_NAME,
    MANIFEST_NAME,
    Manifest,
    described,
    encode_manifest,
    manifest_sha256,
)
from emberkeep.lifecycle.model import Procedure

pytestmark = pytest.mark.anyio

FILES = ("queries/query-a/metadata", "queries/query-a/state/0/0/1.delta", "queries/query-b/metadata", "functions/0")
EMPTY = Manifest(
    job_id=JobId("a" * 32),
    job_name="flights",
    attempt=1,
    trigger_id="b" * 32,
    procedure=Procedure.SUSPEND,
    created_ms=1,
    spark_version="4.3.0",
    emberkeep_version="0.1.0",
    queries=(),
    files=(),
)
STORE = SavepointStore("4.3.0")


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    root = tmp_path / "savepoint"
    for name in FILES:
        put(root, name)
    files = tuple(described(name, b"x") for name in FILES)
    (root / MANIFEST_NAME).write_bytes(encode_manifest(msgspec.structs.replace(EMPTY, files=files)))
    return root


def put(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"x")


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


@pytest.mark.req("SAFE-4")
async def test_foreign_files_stay_and_are_named(savepoint: Path) -> None:
    foreign = {
        "notes.txt",
        "queries/query-a/state/0/0/2.delta",
        "queries/query-c/metadata",
        "other/savepoint/_manifest",
    }
    for name in foreign:
        put(savepoint, name)
    assert set(await STORE.dispose(str(savepoint))) == foreign
    assert names(savepoint) == foreign
    assert not (savepoint / "functions").exists()
    assert not (savepoint / "queries/query-b").exists()


@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize("place", ["linked", "queries/linked"])
async def test_links_stay(savepoint: Path, tmp_path: Path, place: str) -> None:
    put(tmp_path, "elsewhere/file")
    (savepoint / place).symlink_to(tmp_path / "elsewhere")
    await STORE.dispose(str(savepoint))
    assert names(savepoint) == {place}
    assert (tmp_path / "elsewhere" / "file").exists()


async def test_a_whole_savepoint_goes_with_its_check_sums(savepoint: Path) -> None:
    """Those that Hadoop writes beside files of its local file system."""
    for name in (*FILES, MANIFEST_NAME):
        directory, _, leaf = name.rpartition("/")
        put(savepoint, f"{directory}/.{leaf}.crc".lstrip("/"))
    assert await STORE.dispose(str(savepoint)) == ()
    assert not savepoint.exists()


@pytest.mark.req("SAFE-4")
async def test_what_was_broken_off_is_taken_up_again(savepoint: Path) -> None:
    for name in FILES[:2]:
        (savepoint / name).unlink()
    assert await STORE.dispose(str(savepoint)) == ()
    assert not savepoint.exists()


@pytest.mark.req("SAFE-7")
async def test_a_savepoint_is_whole_or_none_while_it_is_deleted(savepoint: Path) -> None:
    """An earlier leader may delete it while a job starts from it."""
    before = names(savepoint)
    whole = await STORE.manifest(str(savepoint))
    assert await STORE.begin_disposal(str(savepoint))
    with pytest.raises(Absent, match="is being deleted"):
        await STORE.manifest(str(savepoint))
    with pytest.raises(Absent, match="is being deleted"):
        await STORE.verify(str(savepoint))
    assert not await STORE.begin_disposal(str(savepoint)), "somebody else may have deleted files"
    await STORE.withdraw_disposal(str(savepoint))
    assert await STORE.manifest(str(savepoint)) == whole
    assert names(savepoint) == before
    assert await STORE.begin_disposal(str(savepoint))
    assert await STORE.dispose(str(savepoint)) == ()
    assert not savepoint.exists()
    await STORE.withdraw_disposal(str(savepoint))
    assert not savepoint.exists()


async def test_a_disposal_that_was_withdrawn_while_another_leader_continued_it_leaves_no_manifest(
    savepoint: Path,
) -> None:
    shutil.copy(savepoint / MANIFEST_NAME, savepoint / DELETING_NAME)
    (savepoint / FILES[0]).unlink()
    assert await STORE.dispose(str(savepoint)) == ()
    assert not savepoint.exists()


async def test_a_retired_savepoint_whose_deletion_was_interrupted_is_deleted(savepoint: Path) -> None:
    retired = pointer(savepoint)
    await STORE.begin_disposal(str(savepoint))
    await STORE.delete(retired, None)
    assert not savepoint.exists()


@pytest.mark.parametrize("above", ["", "nested"])
async def test_a_manifest_that_names_the_files_of_other_savepoints_deletes_nothing(
    savepoint: Path, tmp_path: Path, above: str
) -> None:
    """Jobs may write into the directory that they share, and operators dispose of what a list shows."""
    other = tmp_path / "shared" / above / "savepoint"
    other.parent.mkdir(parents=True)
    savepoint.rename(other)
    listed = tuple(described(f"{other.relative_to(tmp_path / 'shared')}/{name}", b"x") for name in FILES)
    planted = tmp_path / "shared" / MANIFEST_NAME
    planted.write_bytes(encode_manifest(msgspec.structs.replace(EMPTY, files=listed)))
    with pytest.raises(Conflict, match="names files of another savepoint"):
        await STORE.dispose(str(tmp_path / "shared"))
    assert names(other) == {*FILES, MANIFEST_NAME}


def pointer(root: Path) -> SavepointPointer:
    sha256 = manifest_sha256((root / MANIFEST_NAME).read_bytes())
    return SavepointPointer(path=str(root), manifest_sha256=sha256, created_ms=1, periodic=True)


async def test_a_retired_savepoint_is_deleted_and_may_be_deleted_again(savepoint: Path) -> None:
    sibling = savepoint.with_name("newer")
    put(sibling, "x")
    (sibling / MANIFEST_NAME).write_bytes(encode_manifest(EMPTY))
    retired, newer = pointer(savepoint), pointer(sibling)
    for _ in range(2):
        await STORE.delete(retired, newer)
    assert not savepoint.exists()
    assert (sibling / MANIFEST_NAME).exists()


async def test_a_directory_that_is_not_mounted_is_not_taken_for_a_deleted_savepoint(savepoint: Path) -> None:
    sibling = savepoint.with_name("newer")
    put(sibling, "x")
    (sibling / MANIFEST_NAME).write_bytes(encode_manifest(EMPTY))
    retired, newer = pointer(savepoint), pointer(sibling)
    savepoint.parent.rename(savepoint.parent.with_name("unmounted"))
    for beside in (newer, None):
        with pytest.raises(Unavailable, match="may not be mounted"):
            await STORE.delete(retired, beside)


async def test_another_savepoint_at_the_same_path_stays_whole(savepoint: Path) -> None:
    retired = pointer(savepoint)
    (savepoint / MANIFEST_NAME).write_bytes(encode_manifest(EMPTY))
    with pytest.raises(Conflict, match="another savepoint"):
        await STORE.delete(retired, None)
    assert all((savepoint / name).exists() for name in FILES)


class TestWhatADriverClaims:
    """Jobs of other users say where they have made savepoints, and the JobManager deletes with its own rights."""

    OWN = "c" * 32

    @pytest.fixture
    def theirs(self, savepoint: Path) -> Path:
        return savepoint.rename(savepoint.with_name(f"savepoint-aaaaaaaa-{EMPTY.trigger_id[:12]}-1"))

    def claimed(self, path: Path) -> SavepointPointer:
        return msgspec.structs.replace(pointer(path), trigger_id=self.OWN)

    def own(self, directory: Path, theirs: Path) -> None:
        """Make a manifest of the own request in ``directory``, which names the files of another job."""
        listed = tuple(described(f"{theirs.name}/{name}", b"x") for name in FILES)
        manifest = msgspec.structs.replace(EMPTY, trigger_id=self.OWN, files=listed)
        (directory / MANIFEST_NAME).write_bytes(encode_manifest(manifest))

    async def test_a_savepoint_of_another_job_stays_whole(self, theirs: Path) -> None:
        with pytest.raises(Fatal, match="not the directory of a savepoint for request"):
            await STORE.delete(self.claimed(theirs), None)
        assert names(theirs) == {*FILES, MANIFEST_NAME}

    async def test_so_does_one_to_which_a_link_leads(self, theirs: Path) -> None:
        link = theirs.with_name(f"savepoint-dddddddd-{self.OWN[:12]}-1")
        link.symlink_to(theirs)
        with pytest.raises(Fatal, match="not the directory of a savepoint for request"):
            await STORE.delete(self.claimed(link), None)
        assert names(theirs) == {*FILES, MANIFEST_NAME}

    @pytest.mark.parametrize("leaf", ["", f"savepoint-dddddddd-{OWN[:12]}-1"])
    async def test_so_do_all_in_a_directory_that_jobs_share(self, theirs: Path, leaf: str) -> None:
        shared = theirs.parent
        self.own(shared, theirs)
        if leaf:
            (shared / leaf).symlink_to(shared)
        with pytest.raises(Fatal, match="not the directory of a savepoint for request"):
            await STORE.delete(self.claimed(shared / leaf), None)
        assert names(theirs) == {*FILES, MANIFEST_NAME}

    async def test_a_manifest_of_another_request_is_not_followed(self, theirs: Path) -> None:
        copy = theirs.rename(theirs.with_name(f"savepoint-dddddddd-{self.OWN[:12]}-1"))
        with pytest.raises(Conflict, match="another savepoint"):
            await STORE.delete(self.claimed(copy), None)
        assert names(copy) == {*FILES, MANIFEST_NAME}

    async def test_the_savepoint_of_the_request_goes(self, theirs: Path) -> None:
        await STORE.delete(msgspec.structs.replace(pointer(theirs), trigger_id=EMPTY.trigger_id), None)
        assert not theirs.exists()


class HangingState(DirectoryState):
    """A directory in a file system that does not answer before ``answers`` is set."""

    answers = threading.Event()
    asked = threading.Event()

    def delete(self, name: str, *, recursive: bool) -> bool:
        self.asked.set()
        self.answers.wait(60)
        return super().delete(name, recursive=recursive)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[HangingState]]:
    for event in (HangingState.asked, HangingState.answers):
        event.clear()
    monkeypatch.setattr(savepoint_store, "open_state_store", lambda path, **_: HangingState(Path(path)))
    yield HangingState
    HangingState.answers.set()


@pytest.mark.req("SAFE-4")
async def test_a_disposal_goes_no_further_once_its_leader_has_stopped_leading(
    savepoint: Path, hanging: type[HangingState]
) -> None:
    """The next leader does not know the disposal, and may accept a job that starts from the savepoint."""
    more = tuple(f"queries/query-c/state/0/{number}/1.delta" for number in range(20))
    for name in more:
        put(savepoint, name)
    files = tuple(described(name, b"x") for name in (*FILES, *more))
    (savepoint / MANIFEST_NAME).write_bytes(encode_manifest(msgspec.structs.replace(EMPTY, files=files)))
    disposal = asyncio.create_task(SavepointStore("4.3.0").dispose(str(savepoint)))
    while not hanging.asked.is_set():  # noqa: ASYNC110 - a thread tells
        await asyncio.sleep(0.005)
    disposal.cancel()
    await asyncio.wait({disposal}, timeout=10)
    assert disposal.cancelled()
    hanging.answers.set()
    await asyncio.sleep(0.3)
    assert len(names(savepoint)) > len(files) // 2, "only the deletions that were under way are completed"
    with pytest.raises(Absent, match="is being deleted"):
        await STORE.manifest(str(savepoint))
    assert await STORE.dispose(str(savepoint)) == ()


async def test_a_file_system_that_hangs_keeps_nobody_waiting_for_ever(
    savepoint: Path, hanging: type[HangingState]
) -> None:
    with pytest.raises(Unavailable, match="has not answered"):
        await SavepointStore("4.3.0", patience=0.05).dispose(str(savepoint))
    hanging.answers.set()
