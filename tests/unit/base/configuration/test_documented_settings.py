"""The settings that the documentation shows are settings."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from emberkeep.base.configuration.options.job_managers import REST_ADDRESS
from emberkeep.base.configuration.options.security import RUN_AS
from emberkeep.base.configuration.values import REGISTRY, Configuration

DOCS = Path(__file__).parents[4] / "docs"
ROOMS = {key.partition(".")[0] for key in REGISTRY}


def shown() -> list[Any]:
    """Return the settings of each block of YAML, as pairs of key and value, with the block's page and line."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            roots = yaml.compose_all(block[1], Loader=yaml.BaseLoader)
            pairs = [pair for root in roots if isinstance(root, yaml.MappingNode) for pair in root.value]
            settings = [(key.value, value) for key, value in pairs if key.value.partition(".")[0] in ROOMS]
            if settings:
                line = text.count("\n", 0, block.start(1)) + 1
                found.append(pytest.param(settings, id=f"{page.relative_to(DOCS)}:{line}"))
    return found


@pytest.mark.parametrize("settings", shown())
def test_a_block_of_settings_in_the_documentation_can_be_used(settings: list[tuple[str, yaml.Node]]) -> None:
    for key, value in settings:
        assert isinstance(value, yaml.ScalarNode), f"{key} is no setting: keys are flat"
        Configuration().with_texts({key: value.value}, "the documentation")
    keys = [key for key, _ in settings]
    assert sorted(keys) == sorted(set(keys)), "a setting is there twice"


def test_settings_are_found() -> None:
    found = {key for settings in shown() for key, _ in settings.values[0]}
    assert {REST_ADDRESS.key, RUN_AS.key} <= found
