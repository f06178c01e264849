"""PySpark's own examples of machine learning print as jobs of a cluster what they print under spark-submit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.campaign import drawn
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.public_scripts.both_ways import run_both_ways
from tests.integration.public_scripts.scripts import EXAMPLES, differences, examples_of_learning

pytestmark = [pytest.mark.integration, pytest.mark.long]

RUN = Path(__file__).with_name("one_after_another.py")
_FOUND = examples_of_learning()
_AT_A_TIME = 5  # so that a case takes a minute or two
# These draw other numbers each time.
RANDOM = {
    "mllib/gaussian_mixture_example",
    "mllib/k_means_example",
    "mllib/latent_dirichlet_allocation_example",
    "mllib/random_rdd_generation",
    "mllib/ranking_metrics_example",
    "mllib/recommendation_example",
    "mllib/sampled_rdds",
    "mllib/stratified_sampling_example",
    "mllib/word2vec_example",
}
_WITHOUT_SEED = re.compile(r"randomSplit\(\[[\d., ]*\]\)")
# Executors print there what is printed here under spark-submit.
ELSEWHERE = {"mllib/power_iteration_clustering_example"}


def called(path: Path | str) -> str:
    return str(Path(path).relative_to(EXAMPLES).with_suffix(""))


def printed(output: str) -> dict[str, str]:
    """What each example printed, and last how it ended. Only that, if the rest is not the same each time."""
    found: dict[str, str] = {}
    parts = re.split(r"^===== (\S+) (.*)$", output, flags=re.MULTILINE)
    for text, path, ending in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        name = called(path)
        is_random = name in RANDOM or _WITHOUT_SEED.search(Path(path).read_text(encoding="utf-8"))
        found[name] = ending if is_random or name in ELSEWHERE else f"{text}\n{ending}"
    return found


@pytest.mark.parametrize("first", drawn(range(0, len(_FOUND), _AT_A_TIME), 3), ids=lambda first: called(_FOUND[first]))
def test_examples_print_what_they_print_under_spark_submit(cluster: Cluster, plain: Shell, first: int) -> None:
    """In one process, one after another."""
    examples = [str(path) for path in _FOUND[first : first + _AT_A_TIME]]
    alone, job = run_both_ways(cluster, plain, RUN, arguments=tuple(examples))
    assert (alone.code, job.code) == (0, 0), f"{alone}\n{job}"
    expected, found = printed(alone.out), printed(job.out)
    assert list(expected) == [called(path) for path in examples]
    assert list(found) == list(expected), job
    assert {name: lines for name in found if (lines := differences(expected[name], found[name], job.err))} == {}
