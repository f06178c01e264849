"""Folders that other users can write are not on any import path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.base.import_path import import_path, why_unsafe, with_safe_path

pytestmark = pytest.mark.req("SEC-4")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o755)
    return folder


def test_an_own_folder_is_safe_also_before_it_exists(own: Path) -> None:
    assert why_unsafe(own) == ""
    assert why_unsafe(own / "later") == ""


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_all_can_write_is_unsafe(own: Path, mode: int) -> None:
    own.chmod(mode)
    assert why_unsafe(own) == f"other users can write to {own}"
    assert why_unsafe(own / "missing") == f"other users can write to {own}"


def test_a_folder_of_another_group_is_unsafe_if_the_group_can_write(own: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another group")
    own.chmod(0o775)
    assert why_unsafe(own) == "", "the owner's private group"
    os.chown(own, -1, 12345)
    assert why_unsafe(own) == f"other users can write to {own}"


def test_a_parent_that_others_can_write_is_unsafe_unless_it_is_sticky(own: Path) -> None:
    below = own / "below"
    below.mkdir()
    own.chmod(0o777)
    assert why_unsafe(below) == f"other users can write to {own}"
    own.chmod(0o1777)
    assert why_unsafe(below) == ""


def test_a_link_through_a_writable_directory_is_unsafe(own: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    (public / "second").symlink_to(own)
    (tmp_path / "first").symlink_to("public/./../public/second")
    assert why_unsafe(tmp_path / "first") == f"other users can write to {public}"
    public.chmod(0o755)
    assert why_unsafe(tmp_path / "first") == ""


def test_links_in_a_circle_are_unsafe(own: Path) -> None:
    (own / "circle").symlink_to("circle")
    assert "symbolic links" in why_unsafe(own / "circle")


def test_another_users_folder_is_unsafe_unless_that_user_is_trusted(own: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(own, 12345, -1)
    own.chmod(0o755)
    assert why_unsafe(own) == f"{own} belongs to user id 12345"
    assert why_unsafe(own, {12345}) == ""
    assert why_unsafe(own, None) == ""


def test_pythonpath_keeps_safe_folders_only(own: Path, tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    archive = own / "code.zip"
    archive.touch(mode=0o644)
    path = import_path(f":{own}::{public}:{archive}:relative", None)
    assert path.folders == (str(own), str(archive))
    assert [str(refused) for refused in path.refused] == [
        f"{public} is not used for imports: other users can write to {public}",
        "relative is not used for imports: it is a relative path",
    ]


def test_a_relative_folder_belongs_to_the_base_and_is_checked(own: Path) -> None:
    (own / "src").mkdir()
    assert import_path("src", own).folders == (str(own / "src"),)
    own.chmod(0o777)
    assert import_path("src:.", own).folders == ()


def test_an_environment_without_safe_folders_has_no_pythonpath(own: Path) -> None:
    environ, refused = with_safe_path({"PYTHONPATH": ":", "KEPT": "yes"}, own)
    assert (environ, refused) == ({"KEPT": "yes"}, ())
    environ, _ = with_safe_path({"PYTHONPATH": str(own)}, None, ["/first"])
    assert environ == {"PYTHONPATH": f"/first:{own}"}
