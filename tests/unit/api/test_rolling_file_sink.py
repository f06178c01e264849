"""What a RollingFileSink refuses before it meets Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from emberkeep.api import RollingFileSink
from emberkeep.base.errors import InvalidInput


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"format": "orc"}, "format"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_rows": -1}, "max_rows"),
        ({"max_age": timedelta(0)}, "max_age"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RollingFileSink("/out", **arguments)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_state_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidInput, match="version 2"):
        RollingFileSink("/out").initialize_state({"version": 2})


def test_what_users_import_needs_no_spark() -> None:
    code = "import emberkeep.api, sys; sys.exit('pyspark' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
