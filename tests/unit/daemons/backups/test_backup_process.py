"""What the process of a backup says when the operating system refuses something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LONG = "n" * 300  # no file can have such a name


def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    arguments = ("create", str(tmp_path / "backup"), "--state-dir", str(tmp_path / LONG))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "emberkeep.daemons.backups", *arguments], capture_output=True, check=False
    )
    assert done.returncode == 1
    told = json.loads(done.stderr.splitlines()[-1])
    assert LONG in told["message"]
    assert "File name too long" in told["message"]
    assert told["hint"]
