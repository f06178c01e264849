"""Files that only a hosting service, an editor or a git hook reads: they parse, and name what exists here."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import emberkeep

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_hosted_run_does_what_a_local_one_does() -> None:
    workflow = load(".github/workflows/ci.yml")
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] == 90
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert workflow["permissions"] == {"contents": "read"}


def test_the_hosted_run_has_the_oldest_python_and_java_and_the_whole_history() -> None:
    (job,) = load(".github/workflows/ci.yml")["jobs"].values()
    settings = {step["uses"].partition("@")[0]: step["with"] for step in job["steps"] if "uses" in step}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={settings['actions/setup-python']['python-version']}"
    assert settings["actions/setup-java"]["java-version"] == "17"
    assert settings["actions/checkout"]["fetch-depth"] == 0
    assert (ROOT / settings["actions/setup-python"]["cache-dependency-path"]).is_file()


def test_actions_are_pinned_to_a_version() -> None:
    uses = re.findall(r"uses:\s*(\S+)", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert uses
    assert [name for name in uses if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", name)] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_issue_forms_have_what_the_hosting_asks_for(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [item for item in form["body"] if item["type"] != "markdown"]
    assert {item["type"] for item in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({item["id"] for item in fields}) == len(fields)
    assert all(item["attributes"]["label"] for item in fields)


def test_hooks_run_programs_of_the_environment() -> None:
    (repository,) = load(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    development = (ROOT / "requirements-dev.lock").read_text()
    for hook in repository["hooks"]:
        program, *arguments = shlex.split(hook["entry"])
        assert hook["language"] == "system"
        if program == ".venv/bin/python":
            assert arguments[0] == "-m"
            assert importlib.util.find_spec(arguments[1]) is not None
        else:
            assert f"\n{program.removeprefix('.venv/bin/')}==" in development


def test_the_dev_container_has_the_python_and_java_of_the_hosted_run() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert ":3.11-" in container["image"]
    assert container["features"]["ghcr.io/devcontainers/features/java:1"] == {"version": "17"}
    program, *targets = shlex.split(container["postCreateCommand"])
    assert program == "make"
    assert set(targets) <= make_targets()


def test_the_version_is_in_one_place() -> None:
    for folder in (ROOT, ROOT / "airflow_provider"):
        described = tomllib.loads((folder / "pyproject.toml").read_text())
        assert described["project"]["dynamic"] == ["version"]
        source = (folder / described["tool"]["hatch"]["version"]["path"]).resolve()
        assert source == Path(emberkeep.__file__)


# The extras that `make lock` locks for it.
DEVELOPMENT = ("connect", "dev", "kubernetes", "object-store", "opentelemetry")
LOCKS = sorted(ROOT.glob("requirements*.lock"))
_PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+( ; .+)? \\(\n    --hash=sha256:[0-9a-f]{64}( \\)?)+")


@pytest.mark.req("SEC-20")
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_each_dependency_is_locked_with_its_hashes(lock: Path) -> None:
    text = "\n".join(line for line in lock.read_text().splitlines() if line and not line.lstrip().startswith("#"))
    entries = re.split(r"\n(?=\S)", text)
    assert entries
    assert [entry for entry in entries if not _PINNED.fullmatch(entry)] == []


def asked_for(lock: str) -> list[Requirement]:
    """What ``make lock`` locks there beside its own dependencies."""
    source = ROOT / lock.replace(".lock", ".in")
    if source.exists():
        lines = [line for line in source.read_text().splitlines() if line and not line.startswith("#")]
    else:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        lines = project["dependencies"]
        if lock == "requirements-dev.lock":
            lines += [line for extra in DEVELOPMENT for line in project["optional-dependencies"][extra]]
    return [Requirement(line) for line in lines]


@pytest.mark.req("SEC-20")
@pytest.mark.parametrize(
    "lock",
    ["requirements.lock", "requirements-dev.lock", *(path.with_suffix(".lock").name for path in ROOT.glob("*.in"))],
)
def test_a_lock_has_what_was_asked_for(lock: str) -> None:
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[a-z0-9,]+\])?==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    locked = {canonicalize_name(name): version for name, version in found}
    asked = {canonicalize_name(each.name): each.specifier for each in asked_for(lock)}
    assert asked.keys() - locked.keys() == set()
    assert [name for name, versions in asked.items() if not versions.contains(locked[name], prereleases=True)] == []


@pytest.mark.req("SEC-20")
def test_a_release_is_locked_listed_and_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    named = {re.split(r"[^A-Za-z0-9._-]", each)[0] for each in project["dependencies"]}
    assert {name.lower().replace("_", "-") for name in named} <= locked
    recipes = re.sub(r"\\\n\s*", "", (ROOT / "Makefile").read_text())
    installs = re.findall(r".*pip[_ ]install.* -r .*", recipes, re.IGNORECASE)
    assert len(installs) == 4
    assert all("--require-hashes" in line for line in installs)
    listing = next(line for line in recipes.splitlines() if "cyclonedx_py requirements" in line)
    check = next(line for line in recipes.splitlines() if "/pip-audit " in line).partition(";")[0]
    assert "requirements.lock" in listing
    locks = {path.name for path in ROOT.glob("requirements*.lock")} - {
        "requirements-audit.lock",
        "requirements-flink.lock",
    }
    assert locks <= set(check.replace(";", " ").split())
