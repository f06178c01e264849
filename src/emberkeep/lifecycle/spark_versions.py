"""Whether a savepoint of one Spark version can be started from with another. Pure.

A savepoint holds Spark's own files. Each of Spark's logs names its version, and a Spark refuses one that is newer than
it knows: what a newer feature release has written may not be readable by an older one, and some of it is found out only
in the middle of a query. The other way round Spark's migration guides name what has to be looked at, for each feature
release. Maintenance releases change no format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\d+)\.(\d+)")
MIGRATION_GUIDE = "https://spark.apache.org/docs/latest/streaming/ss-migration-guide.html"


@dataclass(frozen=True)
class Verdict:
    """``refusal``: why it cannot be started from; ``warning``: what to look at first. "" where there is nothing."""

    refusal: str = ""
    warning: str = ""


def judge(made_with: str, here: str) -> Verdict:
    """``made_with``: version of the savepoint's Spark; ``here``: of the one that is to start from it."""
    made, present = _VERSION.match(made_with), _VERSION.match(here)
    if made is None or present is None:
        return Verdict(warning=f"its Spark version {made_with!r} cannot be compared with {here!r}")
    older, newer = _numbers(made), _numbers(present)
    if older == newer:
        return Verdict()
    if older > newer:
        return Verdict(
            refusal=f"it was made with Spark {made_with}; Spark {here} is older, and cannot be relied on to read it"
        )
    return Verdict(
        warning=f"it was made with Spark {made_with}, and is read by Spark {here}: see what Spark's migration guide "
        f"says of the versions between, {MIGRATION_GUIDE}"
    )


def _numbers(match: re.Match[str]) -> tuple[int, int]:
    return int(match.group(1)), int(match.group(2))
