"""What a test has started in a network namespace of its own ends with it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.integration.conditions import until
from tests.integration.slurm.real_slurm import own_network, why_no_network

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(why_no_network()), reason=why_no_network())]


def test_nothing_stays_in_a_network_namespace_that_was_left() -> None:
    with own_network():
        parent = subprocess.Popen(
            ["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True
        )
        orphan = int(parent.communicate()[0])
        assert os.path.exists(f"/proc/{orphan}")  # noqa: PTH110
    until(lambda: not _runs(orphan), "the orphan has ended")


def _runs(pid: int) -> bool:
    """True unless the process has ended, whether its parent has reaped it or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
