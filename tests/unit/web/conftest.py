"""Runs the pages' JavaScript modules by Node.js, where it is installed: browsers run the same modules."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import pytest

NODE = shutil.which("node")


class JavaScript(Protocol):
    def __call__(self, modules: Sequence[str], expression: str, *, before: str = "") -> Any:
        """Return the value of an expression, which may use the modules by their names, and what ``before`` defines."""


@pytest.fixture
def javascript(tmp_path: Path) -> JavaScript:
    """Evaluates JavaScript; skips the test without Node.js."""
    if NODE is None:
        pytest.skip("Node.js is not installed")
    place = tmp_path / "javascript"
    place.mkdir()
    (place / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    for file in resources.files("emberkeep.web").joinpath("static").iterdir():
        if file.name.endswith(".js"):
            (place / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")

    def evaluate(modules: Sequence[str], expression: str, *, before: str = "") -> Any:
        imports = "".join(f'import * as {name} from "./{name}.js";' for name in modules)
        script = f"{imports}{before}console.log(JSON.stringify({expression}));"
        (place / "run.mjs").write_text(script, encoding="utf-8")
        done = subprocess.run([str(NODE), "run.mjs"], cwd=place, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return evaluate
