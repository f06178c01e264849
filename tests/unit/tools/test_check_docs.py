"""Each check of the documentation finds what it is for, and passes what is right."""

import sys
import types
from pathlib import Path

import pytest

from tools import check_docs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text("venv: ## Make it\ndemo: venv\n")
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "adr" / "README.md").write_text("[First](0001-first.md)\n")
    (tmp_path / "docs" / "adr" / "0001-first.md").write_text("# First\n")
    (tmp_path / "docs" / "guide.md").write_text(
        "# The `guide`\n```\nrun\n```\n## How to …\n## Again\n## Again\n## Read next\n"
    )
    return tmp_path


def problems(root: Path, page: str = "", generated: dict[str, str] | None = None) -> list[str]:
    (root / "README.md").write_text(page)
    files = [path for path in root.rglob("*") if path.is_file()]
    return [str(problem) for problem in check_docs.check(root, files, generated or {})]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("# A\n```\nrun\n```\n## B\n## Read next\n[C](c)\n", []),
        ("# A\n## B\n```\nrun\n```\n## Read next\n", ["docs/x.md:1: no example"]),
        ("# A\n## Read next\n", ["docs/x.md:1: no example"]),
        ("# A\n```\nrun\n```\n## Read next\n## B\n", ["docs/x.md:6: the last section"]),
        ("# A\n```\nrun\n```\n", ["docs/x.md:1: the last section"]),
    ],
)
def test_pages_open_with_an_example_and_end_with_what_to_read_next(root: Path, page: str, found: list[str]) -> None:
    (root / "docs" / "x.md").write_text(page)
    told = [str(problem) for problem in check_docs.misshapen_pages(root)]
    assert len(told) == len(found)
    assert all(text.startswith(start) for text, start in zip(told, found, strict=True)), told


@pytest.mark.parametrize(
    "link",
    [
        "docs/guide.md",
        "docs/guide.md#the-guide",
        "docs/guide.md#how-to-",
        "docs/guide.md#again-1",
        "docs",
        "#top",
        "https://example.com/nowhere",
        "mailto:someone@example.com",
    ],
)
def test_links_that_lead_somewhere_pass(root: Path, link: str) -> None:
    assert problems(root, f"# Top\n[here]({link})\n") == []


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("docs/absent.md", "docs/absent.md does not exist"),
        ("docs/guide.md#absent", "no heading there has the anchor #absent"),
        ("docs/guide.md#again-2", "no heading there has the anchor #again-2"),
        ("#absent", "no heading there has the anchor #absent"),
        ("..", "leaves the project"),
    ],
)
def test_links_that_lead_nowhere_are_found(root: Path, link: str, reason: str) -> None:
    (found,) = problems(root, f"# Top\n\n[here]({link})\n")
    assert found.startswith("README.md:3: ")
    assert reason in found


def test_links_in_code_are_not_links(root: Path) -> None:
    assert problems(root, "`[a](absent.md)`\n```\n[b](absent.md)\n```\n") == []


def test_links_over_two_lines_are_found(root: Path) -> None:
    (found,) = problems(root, "# Top\n\nSee [a link of\nseveral words](absent.md) there.\n")
    assert found.startswith("README.md:3: link to absent.md")


def test_backticks_of_two_paragraphs_are_no_code_between_them(root: Path) -> None:
    (found,) = problems(root, "One ` here.\n\n[a](absent.md)\n\nAnother ` there.\n")
    assert found.startswith("README.md:3: link to absent.md")


def test_paragraphs_with_long_lines_are_found(root: Path) -> None:
    long = "word " * 30
    (found,) = problems(root, f"# {long}\n\nshort\n{long}\n\n```\n{long}\n```\n\n| {long} |\n|---|\n")
    assert found == "README.md:3: this paragraph has a line over 100 columns: `make format` wraps it"


def test_make_targets_in_code_blocks_must_exist(root: Path) -> None:
    page = "make nothing of this\n```bash\nmake demo PYTEST_ARGS=x\ncd x && make absent  # make it\n```\n"
    assert problems(root, page) == ["README.md:4: `make absent`: the Makefile has no such target"]


def test_decisions_must_be_listed(root: Path) -> None:
    (root / "docs" / "adr" / "0002-second.md").write_text("# Second\n")
    (found,) = problems(root)
    assert found.startswith("docs/adr/0002-second.md:1: ")


# In two parts, as the check itself reads this file too.
@pytest.mark.parametrize("path", ["/" + "work/main", "/" + "root/x", "/" + "home/me/x", "shared" + "/notes.md"])
def test_private_paths_are_found(root: Path, path: str) -> None:
    (found,) = problems(root, f"see\n{path}\n")
    assert found.startswith("README.md:2: ")


def test_generated_pages_must_be_current(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = types.ModuleType("page_generator")
    generator.render = lambda: "# Options\n"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "page_generator", generator)
    generated = {"docs/reference/options.md": "page_generator"}
    (found,) = problems(root, generated=generated)
    assert "run `python -m tools.check_docs --write`" in found
    check_docs.write_references(root, generated)
    assert problems(root, generated=generated) == []
    generator.render = lambda: "# Other\n"  # type: ignore[attr-defined]
    assert len(problems(root, generated=generated)) == 1


def test_unknown_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_docs.main(["--wrong"]) == 2
    assert "usage" in capsys.readouterr().err
