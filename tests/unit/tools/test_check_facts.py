"""Each comparison of pages with the code finds what differs, and passes what is right."""

from pathlib import Path

import pytest

from emberkeep.protocol.messages.requests import REQUESTS
from tools import check_facts

TABLE = "| id | requirement |\n|---|---|\n| HA-1 | One leads. |\n"


def found(root: Path, page: str = TABLE, code: str = '@pytest.mark.req("HA-1")\n') -> list[str]:
    (root / "requirements.md").write_text(page)
    (root / "test_x.py").write_text(code)
    files = [root / "requirements.md", root / "test_x.py"]
    return [f"{file.name}:{line}: {what}" for file, line, what in check_facts.requirements(files[0], files)]


def test_a_requirement_that_a_test_names_passes(tmp_path: Path) -> None:
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("page", "code", "problem"),
    [
        (TABLE, "", "requirements.md:3: no test names HA-1"),
        (TABLE, '# HA-1\n"HA-1"\n', "requirements.md:3: no test names HA-1"),
        (TABLE + "| HA-1 | Again. |\n", '@pytest.mark.req("HA-1")\n', "requirements.md:4: HA-1 is defined twice"),
        (TABLE, '@pytest.mark.req("HA-1", "HA-99")\n', "test_x.py:1: HA-99 is not in requirements.md"),
    ],
)
def test_requirements_without_tests_and_ids_without_text_are_found(
    tmp_path: Path, page: str, code: str, problem: str
) -> None:
    assert found(tmp_path, page, code) == [problem]


def test_a_planned_requirement_needs_no_test(tmp_path: Path) -> None:
    assert found(tmp_path, TABLE + "| SEC-1 | Planned. |\n") == []


def test_a_source_file_that_a_page_names_exists(tmp_path: Path) -> None:
    (tmp_path / "src" / "a").mkdir(parents=True)
    (tmp_path / "src" / "a" / "b.py").touch()
    page = tmp_path / "page.md"
    page.write_text("First `src/a/b.py`,\nthen `src/a/gone.py`.\n")
    assert list(check_facts.source_files(tmp_path, page)) == [(page, 2, "there is no src/a/gone.py")]


@pytest.mark.parametrize("place", ["src/emberkeep", "airflow_provider/src", "bench", "tests/unit"])
def test_a_folder_with_more_than_twenty_modules_is_found(tmp_path: Path, place: str) -> None:
    room, other = tmp_path / place / "room", tmp_path / place / "other"
    for folder, modules in ((room, 21), (other, 20)):
        folder.mkdir(parents=True)
        for name in ("__init__", *(f"m{number}" for number in range(modules))):
            (folder / f"{name}.py").touch()
    assert list(check_facts.full_folders(tmp_path)) == [(room, 1, "21 modules, more than 20: give them rooms (ADR 20)")]


def test_the_table_of_messages_has_each_request_and_no_other(tmp_path: Path) -> None:
    page = tmp_path / "architecture.md"
    names = " ".join(f"`{name}`" for name in REQUESTS if name != "AskLeader")
    page.write_text(f"# A\n## Messages\n\n| a → b | {names}, `Invented` |\n\n## Flows\n`Other`\n")
    assert list(check_facts.messages(page)) == [
        (page, 2, "the table of messages lacks AskLeader"),
        (page, 2, "the table of messages has Invented, which is not a request"),
    ]


def test_the_tables_of_packages_and_rooms_are_the_folders(tmp_path: Path) -> None:
    for name in ("base", "base/files", "spark"):
        folder = tmp_path / "src" / "emberkeep" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    page = tmp_path / "architecture.md"
    page.write_text("## Packages\n| `base`, `jobs` | pure |\n\n| package | rooms |\n| `base` | `configuration` |\n")
    assert [what for _, _, what in check_facts.packages(tmp_path, page)] == [
        "the table of packages has, without such a folder, jobs",
        "the table of packages lacks spark",
        "the table of rooms has, without such a folder, base.configuration",
        "the table of rooms lacks base.files",
    ]
