"""The tests of control groups in a virtual machine whose memory and processors are under version 2.

Where the kernel of this machine has given these controllers to version 1, only another kernel can show it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.integration.taskmanager import guest

pytestmark = [pytest.mark.integration, pytest.mark.long]

_TESTS = "tests/integration/taskmanager/test_cgroups.py"
# Those in which the kernel's limit matters.
_CHOSEN = "too_much or not_its_own_fault or keeps_to_its_memory or reads_and_writes or standby_process"
_NUMBER = 5
_SECONDS = 900.0  # most of them are for imports


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads all files that the virtual machine needs")
def test_processes_are_limited_and_their_ends_are_explained(tmp_path: Path) -> None:
    if reason := guest.why_not():
        pytest.skip(reason)
    command = f"PYTHONDONTWRITEBYTECODE=1 '{sys.executable}' -m pytest -n 0 -q -rs -k '{_CHOSEN}' {_TESTS}"
    code, said = guest.run(f"cat /sys/fs/cgroup/cgroup.controllers && {command}", tmp_path, _SECONDS)
    assert {"cpu", "memory"} <= set(said.partition("cpuset ")[2].partition("\n")[0].split()), said
    assert code == 0, said
    assert f"{_NUMBER} passed" in said, said
    assert "skipped" not in said, said
