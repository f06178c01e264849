"""The files of a RollingFileSink on file systems of different kinds."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.base.errors import Conflict


def test_an_output_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    files, path = LocalFiles(), f"{tmp_path}/log/1.record"
    files.create(path, b"first")
    with pytest.raises(Conflict):
        files.create(path, b"second")
    assert files.read(path) == b"first"
    assert files.names(f"{tmp_path}/log") == ["1.record"]
