"""What an error of a file system says about the data behind it."""

import errno
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.files.errors import cannot_read, cannot_write


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT, errno.ENOTCONN])
def test_what_cannot_be_read_now_is_unavailable(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    error = cannot_read(path, OSError(number, "error"))
    assert type(error) is Unavailable
    assert str(path) in str(error)


@pytest.mark.req("SAFE-1")
def test_a_missing_file_is_absent_only_in_a_directory_that_is_there(tmp_path: Path) -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert type(cannot_read(tmp_path / "file", error)) is Absent
    assert type(cannot_read(tmp_path / "mount" / "file", error)) is Unavailable


def test_a_full_disk_is_not_waited_for(tmp_path: Path) -> None:
    assert type(cannot_write(tmp_path / "file", OSError(errno.ENOSPC, "No space left on device"))) is Fatal
    assert type(cannot_write(tmp_path / "file", OSError(errno.ESTALE, "Stale file handle"))) is Unavailable
