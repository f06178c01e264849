"""PySpark's own batch examples end hot as they end cold. Each campaign runs one, chosen by its seed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyspark
import pytest

from emberkeep.jobs.model import JobStatus
from emberkeep.slots.model import ProcessStart
from tests.campaign import CAMPAIGN
from tests.integration.clusters import Cluster
from tests.integration.standbys.warm_cluster import WARM_SECONDS, starts, submit, wait_until_warm, warm_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

PACKAGE = Path(pyspark.__file__).parent
EXAMPLES = PACKAGE / "examples" / "src" / "main" / "python"


def batch_examples() -> list[Path]:
    """The examples without arguments that end by themselves."""
    found = [path for room in ("ml", "mllib", "sql") for path in sorted((EXAMPLES / room).glob("*.py"))]
    texts = {path: path.read_text(encoding="utf-8") for path in (*found, EXAMPLES / "pi.py")}
    unfit = ("sys.argv[1]", "jdbc", "enableHiveSupport", "StreamingContext")
    return [path for path, text in texts.items() if "__main__" in text and not any(words in text for words in unfit)]


def ended(cluster: Cluster, example: Path, start: ProcessStart) -> tuple[JobStatus, int, int | None, str]:
    """Run an example to its end. Return its state, its attempts, its exit code and the kind of its error."""
    job_id = submit(cluster, example)
    seen = cluster.wait_for(job_id, lambda job: job.emberkeep.attempts and starts(job)[0], "the driver starts")
    assert starts(seen)[0] is start
    job = cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the example ends", WARM_SECONDS)
    last = job.emberkeep.attempts[-1]
    return job.state, job.emberkeep.attempt, last.exit_code, last.root_cause.partition(":")[0]


def test_an_example_ends_hot_as_it_ends_cold(tmp_path: Path, class_archive: Path) -> None:
    example = random.Random(CAMPAIGN).choice(batch_examples())
    print(f"example: {example.relative_to(EXAMPLES)}")
    cluster = warm_cluster(tmp_path, class_archive, ("127.0.0.2",))
    # Examples read files of the package below the directory in which they run, and write beside them.
    for name in ("data", "examples"):
        shutil.copytree(PACKAGE / name, cluster.shell.work / name)
    try:
        cold = ended(cluster, example, ProcessStart.COLD)
        wait_until_warm(cluster)
        hot = ended(cluster, example, ProcessStart.HOT)
    finally:
        cluster.close()
    assert hot == cold
