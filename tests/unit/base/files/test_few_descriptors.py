"""Files while the process has no descriptors left: nothing is taken for gone, and the hint is about descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.errors import cannot_read, read_if_there, shortage
from emberkeep.base.files.hostile import remove_tree
from tests.support.kernel.few_descriptors import few_descriptors


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_tree_that_cannot_be_listed_stays_without_an_error(tmp_path: Path, free: int) -> None:
    tree = tmp_path / "tree"
    (tree / "inner" / "most").mkdir(parents=True)
    (tree / "inner" / "file").touch()

    with few_descriptors(free):
        remove_tree(tree)
    remove_tree(tree)

    assert not tree.exists()


def test_what_cannot_be_opened_is_not_gone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")

    with few_descriptors(0), pytest.raises(Unavailable, match="Too many open files") as raised:
        read_if_there(file)

    assert raised.value.hint is not None
    assert "ulimit -n" in raised.value.hint
    assert file.read_bytes() == b"data"


def test_a_file_that_cannot_be_replaced_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"before")

    with few_descriptors(0), pytest.raises(Fatal) as raised:
        write_file(file, b"after")

    assert raised.value.hint is not None
    assert "ulimit -n" in raised.value.hint
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"before"}


def test_other_errors_are_about_the_path(tmp_path: Path) -> None:
    error = PermissionError(13, "Permission denied")

    assert shortage(error) is None
    assert cannot_read(tmp_path, error).hint == "check that its file system is mounted and that this user may read it"
