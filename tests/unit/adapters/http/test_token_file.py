"""The token file is private, made once, and never used when others could have read it."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from emberkeep.adapters.http.token_file import load_or_create_token, load_token
from emberkeep.base.errors import Fatal
from emberkeep.base.files.operations import SystemFiles


def test_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = load_or_create_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert load_or_create_token(path) == load_token(path) == token
    assert [entry.name for entry in path.parent.iterdir()] == ["token"]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(load_or_create_token, [tmp_path / "token"] * 64))
    assert len(tokens) == 1


class NoHardLinks(SystemFiles):
    """A file system such as FAT, or a mount of a program."""

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)


def test_a_file_system_without_hard_links_has_a_token_as_well(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path, NoHardLinks())
    assert load_or_create_token(path, NoHardLinks()) == token
    with ThreadPoolExecutor(16) as pool:
        others = set(pool.map(partial(load_or_create_token, files=NoHardLinks()), [tmp_path / "other"] * 64))
    assert len(others) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "token"]


def test_a_missing_file_is_not_made_by_load(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="No such file"):
        load_token(tmp_path / "token")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_file_that_others_can_use_is_refused_with_what_to_do(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    load_or_create_token(path)
    path.chmod(mode)
    with pytest.raises(Fatal, match="chmod 600"):
        load_or_create_token(path)


@pytest.mark.parametrize("content", ["", "short", "x" * 600, "with space " * 5, "ü" * 40])
def test_a_file_without_a_token_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(Fatal, match="no valid token"):
        load_or_create_token(path)
    assert path.read_text() == content


def test_links_and_directories_are_refused(tmp_path: Path) -> None:
    load_or_create_token(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    for name, reason in [("link", "symbolic link"), ("dangling", "symbolic link"), ("folder", "not a regular file")]:
        with pytest.raises(Fatal, match=reason):
            load_or_create_token(tmp_path / name)


def test_an_unusable_place_says_where_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Fatal, match=f"{tmp_path}/file/token"):
        load_or_create_token(tmp_path / "file" / "token")
