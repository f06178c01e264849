"""A state gateway that runs as root uses a job's files with the rights of the job's user, and no others."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.directories.tree import FirstStart
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.acting_user import acting_as, acting_as_itself
from emberkeep.base.processes.os_user import OsUser
from emberkeep.local_state.model import FileKind
from emberkeep.taskmanager.state_gateway.user_state import UserState
from tests.integration.security.other_users import place_for_all

pytestmark = [
    pytest.mark.req("SEC-13"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user: run this test as root"),
]

MINE = OsUser("mine", 64001, 64001, (64001, 64100), "/", "/bin/sh")
OTHER = OsUser("other", 64002, 64002, (64002,), "/", "/bin/sh")


@pytest.fixture
def place() -> Iterator[Path]:
    with place_for_all() as place:
        yield place


@pytest.fixture
def source(place: Path) -> Path:
    """A staged file, which only root can read."""
    path = place / "closed" / "staged"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"state")
    path.chmod(0o600)
    return path


def root_of(place: Path, user: OsUser) -> Path:
    root = place / user.name
    root.mkdir(mode=0o700)
    os.chown(root, user.uid, user.gid)
    return root


def state_of(root: Path, user: OsUser) -> UserState:
    return UserState(DirectoryState(root, first_start=FirstStart.ELSEWHERE), user)


def identity() -> tuple[int, int, list[int]]:
    """Return whose rights this thread has, as the kernel sees them."""
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["Uid"].split()[3]), int(lines["Gid"].split()[3]), sorted(map(int, lines["Groups"].split()))


def test_only_the_thread_acts_as_the_user_and_only_for_that_time() -> None:
    before, during, beside = identity(), threading.Event(), threading.Event()
    seen = []

    def watch() -> None:
        during.wait(60)
        seen.append(identity())
        beside.set()

    other = threading.Thread(target=watch)
    other.start()
    with acting_as(MINE):
        assert identity() == (MINE.uid, MINE.gid, [64001, 64100])
        during.set()
        assert beside.wait(60)
        with acting_as_itself():
            assert identity() == before
        with acting_as(OTHER):
            assert identity() == (OTHER.uid, OTHER.gid, [OTHER.gid])
        assert identity() == (MINE.uid, MINE.gid, [64001, 64100])
    other.join()
    assert seen == [before]
    assert identity() == before
    with acting_as_itself():
        assert identity() == before


def test_a_thread_is_itself_again_after_an_error() -> None:
    before = identity()
    with pytest.raises(ZeroDivisionError), acting_as(MINE):
        raise ZeroDivisionError
    assert identity() == before


def test_new_files_belong_to_the_user_and_all_operations_work(place: Path, source: Path) -> None:
    root = root_of(place, MINE)
    state = state_of(root, MINE)
    state.create("query/state/0/1.delta", source, overwrite=False)
    state.make_directory("query/offsets")
    state.rename("query/state/0/1.delta", "query/state/0/2.delta", overwrite=False)
    for path in (root / "query", root / "query/state/0", root / "query/state/0/2.delta", root / "query/offsets"):
        assert (path.stat().st_uid, path.stat().st_gid) == (MINE.uid, MINE.gid)
        assert path.is_file() or path.stat().st_mode & 0o777 == 0o700
    status, pieces = state.read("query/state/0/2.delta", 0, None)
    assert b"".join(pieces) == b"state"
    assert [each.name for each in state.listing("query")] == ["query/offsets", "query/state"]
    assert status.kind is FileKind.FILE
    assert state.delete("query", recursive=True)
    state.close()


def test_a_group_of_the_user_counts(place: Path) -> None:
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    os.chown(shared, 0, 64100)
    state_of(shared, MINE).make_directory("query")
    with pytest.raises(EmberkeepError):
        state_of(shared, OTHER).listing("")


@pytest.mark.parametrize("whose", ["root's", "another job's"])
def test_files_of_others_are_out_of_reach(place: Path, source: Path, whose: str) -> None:
    """As a job could reach them by the gateway: it names a directory as a checkpoint location."""
    victim = place / "victim"
    victim.mkdir(mode=0o755)
    (victim / "secret").write_bytes(b"secret")
    (victim / "secret").chmod(0o600)
    if whose == "another job's":
        for path in (victim, victim / "secret"):
            os.chown(path, OTHER.uid, OTHER.gid)
    state = state_of(victim, MINE)
    assert [each.name for each in state.listing("")] == ["secret"], "its user may list it"
    for attempt in (
        lambda: state.read("secret", 0, None),
        lambda: state.create("planted", source, overwrite=False),
        lambda: state.create("secret", source, overwrite=True),
        lambda: state.rename("secret", "moved", overwrite=False),
        lambda: state.delete("secret", recursive=False),
        lambda: state.delete("", recursive=True),
        lambda: state.make_directory("planted"),
    ):
        with pytest.raises(EmberkeepError):
            attempt()
    assert sorted(path.name for path in victim.iterdir()) == ["secret"]
    assert (victim / "secret").read_bytes() == b"secret"
    assert identity()[0] == 0


def test_a_link_to_a_directory_of_root_opens_nothing(place: Path, source: Path) -> None:
    closed = source.parent
    root = root_of(place, MINE)
    (root / "query").symlink_to(closed)
    (place / "elsewhere").symlink_to(closed)
    for state, name in ((state_of(root, MINE), "query/staged"), (state_of(place / "elsewhere", MINE), "staged")):
        with pytest.raises(EmberkeepError):
            state.read(name, 0, None)
        with pytest.raises(EmberkeepError):
            state.create(name, source, overwrite=True)
    assert source.read_bytes() == b"state"
