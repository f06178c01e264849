"""A pipeline's project: which specification is found, what is refused, and what is packed."""

import os
import zipfile
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.doors import pipeline_project
from emberkeep.client.doors.pipeline_project import find_project, pack

SPEC = """
name: shop
storage: file://{storage}
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory of a project with definitions, and with what earlier runs have left there."""
    directory = tmp_path / "shop"
    (directory / "transformations" / "deep").mkdir(parents=True)
    (directory / "spark-pipeline.yml").write_text(SPEC.format(storage=directory / "pipeline-storage"))
    (directory / "transformations" / "orders.py").write_text("x = 1\n")
    (directory / "transformations" / "deep" / "big.sql").write_text("SELECT 1\n")
    (directory / "lookup.json").write_text("{}")
    for left in ("pipeline-storage/_checkpoints/0", "spark-warehouse/t/part", ".git/config", "__pycache__/m.pyc"):
        path = directory / left
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left")
    return directory


def packed(directory: Path, target: Path) -> list[str]:
    pack(find_project(None, directory), target)
    with zipfile.ZipFile(target) as archive:
        return sorted(archive.namelist())


def test_the_nearest_specification_above_is_found_and_read(project: Path) -> None:
    found = find_project(None, project / "transformations" / "deep")
    assert (found.spec, found.name) == (project / "spark-pipeline.yml", "shop")
    assert found.configuration == {"spark.sql.shuffle.partitions": "2"}


def test_definitions_are_packed_and_what_runs_leave_behind_is_not(project: Path, tmp_path: Path) -> None:
    assert packed(project, tmp_path / "a.zip") == [
        "lookup.json",
        "spark-pipeline.yml",
        "transformations/deep/big.sql",
        "transformations/orders.py",
    ]


def test_a_folder_behind_a_symbolic_link_is_packed_once_and_without_an_end(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "common.py").write_text("y = 2\n")
    (shared / "itself").symlink_to(shared)
    (project / "transformations" / "shared").symlink_to(shared)
    (project / "transformations" / "project").symlink_to(project)
    (tmp_path / "other").mkdir()
    (shared / "other").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "back").symlink_to(shared)
    (tmp_path / "other" / "z.py").write_text("z = 3\n")
    names = packed(project, tmp_path / "a.zip")
    assert [name for name in names if "shared" in name] == [
        "transformations/shared/common.py",
        "transformations/shared/other/z.py",
    ]
    assert not any("project/" in name for name in names)


def test_equal_projects_make_equal_archives(project: Path, tmp_path: Path) -> None:
    packed(project, tmp_path / "a.zip")
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    packed(project, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_project_that_is_too_large_is_refused(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_project, "MAX_FILES", 3)
    with pytest.raises(InvalidInput, match="too large: more than 3 files"):
        packed(project, tmp_path / "a.zip")


def test_a_large_file_of_data_is_refused_and_not_read_into_memory(project: Path, tmp_path: Path) -> None:
    with (project / "orders.parquet").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidInput, match="too large"):
        packed(project, tmp_path / "a.zip")


def test_two_specifications_in_one_directory_need_a_choice(project: Path) -> None:
    (project / "spark-pipeline.yaml").write_text(SPEC)
    with pytest.raises(InvalidInput, match="has two pipeline specifications"):
        find_project(None, project)
    assert find_project(str(project / "spark-pipeline.yml"), project).name == "shop"


def test_without_a_specification_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no spark-pipeline\.yml or spark-pipeline\.yaml in") as error:
        find_project(None, tmp_path)
    assert "spark-pipelines init" in str(error.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list\n", "is not a mapping"),
        ("storage: /s\n", "has no name"),
        ("name: x\n", "has no storage"),
        ("name: x\nstorage: /s\nconfiguration: {spark.a: 2}\n", "the value of 'spark.a' in configuration is not text"),
        ("name: x\nstorage: /s\nconfiguration: [1]\n", "configuration is not a mapping"),
        ("name: x\nstorage: /s\nlibraries: [{glob: {include: ../more/**}}]\n", "is outside of the project's directory"),
        ("name: x\nstorage: /s\nlibraries: [{glob: {include: /more/a.py}}]\n", "is outside of the project's directory"),
        ("name: x\nstorage: /s\nlibraries: [transformations]\n", "is not of the form glob"),
        ("name: [\n", "cannot read the pipeline specification"),
        ("[" * 2000, "cannot read the pipeline specification .*nested too deeply"),
        ("name: 2026-02-30\n", "cannot read the pipeline specification .*day is out of range"),
    ],
)
def test_specifications_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        find_project(None, tmp_path)


def test_a_file_whose_name_is_not_utf_8_is_told_with_a_way_out(project: Path, tmp_path: Path) -> None:
    with open(os.fsencode(project) + b"/caf\xe9.sql", "w"):  # noqa: PTH123 - a Path has text
        pass
    with pytest.raises(InvalidInput, match=r"caf.+\.sql' is not UTF-8"):
        packed(project, tmp_path / "a.zip")


def test_what_is_no_regular_file_is_told_and_not_waited_for(project: Path, tmp_path: Path) -> None:
    os.mkfifo(project / "events")
    with pytest.raises(InvalidInput, match="events is not a regular file"):
        packed(project, tmp_path / "a.zip")


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}", "file://localhost{}"])
def test_the_storage_is_left_out_however_its_place_is_written(project: Path, tmp_path: Path, form: str) -> None:
    (tmp_path / "link").symlink_to(project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace(f"file://{project}", form.format(tmp_path / "link")))
    assert not any("_checkpoints" in name for name in packed(tmp_path / "link", tmp_path / "a.zip"))


def test_the_project_of_a_linked_specification_is_where_the_link_is(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "specifications" / "shop.yml"
    shared.parent.mkdir()
    (project / "spark-pipeline.yml").rename(shared)
    (project / "spark-pipeline.yml").symlink_to(shared)
    assert find_project(None, project).directory == project
    assert find_project(str(project / "spark-pipeline.yml"), tmp_path).spec.name == "spark-pipeline.yml"
    assert "transformations/orders.py" in packed(project, tmp_path / "a.zip")
