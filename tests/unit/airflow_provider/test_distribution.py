"""The provider's distribution beside the main one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import emberkeep
import emberkeep_airflow
from emberkeep_airflow.provider_info import get_provider_info

ROOT = Path(__file__).parents[3]


def project(path: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return found


def test_both_distributions_have_one_version() -> None:
    provider = project("airflow_provider/pyproject.toml")
    versions = {provider["version"], emberkeep_airflow.__version__, emberkeep.__version__}
    assert versions == set(get_provider_info()["versions"])
    assert get_provider_info()["package-name"] == provider["name"]


def test_what_the_client_imports_has_the_bounds_of_the_main_distribution() -> None:
    main = set(project("pyproject.toml")["dependencies"])
    provider = set(project("airflow_provider/pyproject.toml")["dependencies"])
    assert {each.partition(">")[0] for each in provider - main} == {"apache-airflow"}
