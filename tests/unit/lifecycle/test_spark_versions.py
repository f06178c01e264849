"""Which Spark may start from which Spark's savepoint."""

import pytest

from emberkeep.lifecycle.spark_versions import judge


@pytest.mark.parametrize(
    ("made_with", "here", "refusal", "warning"),
    [
        ("4.3.0", "4.3.0", "", ""),
        ("4.3.0", "4.3.7", "", ""),
        ("4.3.0", "4.2.9", "4.2.9 is older", ""),
        ("4.10.0", "4.9.0", "4.9.0 is older", ""),
        ("5.0.0", "4.9.0", "4.9.0 is older", ""),
        ("4.2.0", "4.3.0", "", "migration guide"),
        ("3.9.0", "4.0.0", "", "migration guide"),
        ("unknown", "4.3.0", "", "cannot be compared"),
        ("4.3.0", "", "", "cannot be compared"),
    ],
)
def test_versions_are_compared(made_with: str, here: str, refusal: str, warning: str) -> None:
    verdict = judge(made_with, here)
    assert (refusal in verdict.refusal, bool(verdict.refusal)) == (True, bool(refusal))
    assert (warning in verdict.warning, bool(verdict.warning)) == (True, bool(warning))
