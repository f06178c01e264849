"""Stopped, saved, restored, drained, crashed: in any order, several times, and what comes out is the batch answer."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.campaign import CAMPAIGN
from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.sequence_script import SEQUENCES

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Of each of the four pairs of queries, and one more of the first; each takes some ten seconds.
EXAMPLES = int(os.environ.get("EMBERKEEP_STOP_SEQUENCES", "2"))
# The first example of each pair is the same for all seeds, so this holds or the test has become blind.
AT_LEAST = {
    *("suspend_and_restore", "drain_and_restore", "drain_and_go_on"),
    *("drain_fails", "crash_in_a_batch", "crash_in_a_drain"),
}


@pytest.mark.req("END-4", "END-5", "END-6", "END-9")
def test_what_comes_out_is_the_batch_answer_whatever_is_done_in_whatever_order(
    drivers: DriverRunner, tmp_path: Path
) -> None:
    work = str(tmp_path / "work")
    done = drivers.run(
        SEQUENCES,
        *(work, str(EXAMPLES), str(CAMPAIGN or 0)),
        spark_conf={"spark.executor.cores": "2"},
        seconds=300 * (EXAMPLES + 1),
    )

    assert done.exit_code == 0, f"{done.stdout}\n{done.stderr}"
    actions = Counter(action for actions, _ in done.results()["told"] for action in actions)
    assert actions.keys() >= AT_LEAST, actions
