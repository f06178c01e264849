"""The provider's dependencies beside those of the main distribution; `tools/test_distribution.py` builds both."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def project(path: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / path).read_text())["project"]
    return found


def test_what_the_client_imports_has_the_bounds_of_the_main_distribution() -> None:
    main = set(project("pyproject.toml")["dependencies"])
    provider = set(project("airflow_provider/pyproject.toml")["dependencies"])
    assert {each.partition(">")[0] for each in provider - main} == {"apache-airflow"}
