"""A rolling file sink, and the checkpoint of its query in a durable store: every row is visible once in the end."""

from __future__ import annotations

from pathlib import Path

from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.errors import Absent
from emberkeep.local_state.errors import Exists
from tests.support.contracts.durable_state import read
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.pairs.pair import Pair, Roots
from tests.support.crashes.sink import Query, all_rows


class StoredCheckpoint:
    """The offset log and the commit log of a query. ``promised``: the commits that Spark knows to be durable."""

    def __init__(self, root: Path, promised: set[int]) -> None:
        self._store = DirectoryState(root)
        self._source = root.with_name("entry")
        self._promised = promised

    def plan(self, batch: int) -> bytes:
        self._create(f"offsets/{batch}", f"plan of {batch}".encode())
        return read(self._store, f"offsets/{batch}")

    def commit(self, batch: int) -> None:
        self._create(f"commits/{batch}", b"{}")
        self._promised.add(batch)

    def commits(self) -> set[int]:
        try:
            return {int(entry.name.rpartition("/")[2]) for entry in self._store.listing("commits")}
        except Absent:
            return set()

    def _create(self, name: str, data: bytes) -> None:
        self._source.write_bytes(data)
        try:
            self._store.create(name, self._source, overwrite=False)
        except Exists:
            assert read(self._store, name) == data, f"{name} is another one"


class SinkAndDriver:
    """The first disk is the output's, the second one the checkpoint's."""

    def __init__(self) -> None:
        self._attempt = 0
        self._committed: set[int] = set()
        self._has_ended = False

    def go_on(self, roots: Roots, disks: tuple[FollowedFiles, FollowedFiles], lost: frozenset[int]) -> None:
        self._attempt += 1
        checkpoint = StoredCheckpoint(roots[1], self._committed)
        query = Query(roots[0], self._attempt, checkpoint)
        shown = query.visible()
        assert shown <= all_rows(), "rows are visible twice"
        assert self._committed <= checkpoint.commits(), "a commit is gone"
        assert not self._has_ended or shown == all_rows(), "rows that were shown are gone"
        query.run()
        self._has_ended = True

    def check_end(self, roots: Roots) -> None:
        assert Query(roots[0], 99, StoredCheckpoint(roots[1], set())).visible() == all_rows()


PAIR = Pair("sink and driver", SinkAndDriver)
