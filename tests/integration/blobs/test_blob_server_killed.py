"""A BLOB server that is killed between any two steps: nothing partial is readable, what is referenced stays, or is
healed, everything else is gone after two clean-ups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]

PROGRAM = [sys.executable, "-m", "tests.integration.blob_server_kills"]


@pytest.mark.req("BLOB-3")
@pytest.mark.req("BLOB-5")
@pytest.mark.req("BLOB-10")
@pytest.mark.req("BLOB-15")
@pytest.mark.req("BLOB-17")
def test_a_server_may_be_killed_between_any_two_steps(tmp_path: Path) -> None:
    # A process's death loses nothing that it has written: syncing to a slow disk would only take time.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as directory:
        done = subprocess.run([*PROGRAM, directory], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert not result["failures"], "\n".join(result["failures"])
    # Fewer would mean that its steps are not seen any more.
    assert result["kills"] > 100
    assert result["recovery_kills"] > 50
