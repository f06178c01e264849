"""Decide whether a job can start from a savepoint that was made with another Spark version. Pure.

A savepoint holds Spark's own files. Each of Spark's logs names its format version, and Spark refuses versions that are
newer than those it supports. So an older feature release may be unable to read what a newer one wrote, and may discover
that only in the middle of a query. In the other direction, Spark's migration guide names for each feature release what
to check. Maintenance releases change no format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"(\d+)\.(\d+)")
MIGRATION_GUIDE = "https://spark.apache.org/docs/latest/streaming/ss-migration-guide.html"


@dataclass(frozen=True)
class VersionVerdict:
    """The result of ``judge``.

    ``refusal``: why a job cannot start from the savepoint; "" if it can. ``warning``: what to check before the start;
    "" if nothing.
    """

    refusal: str = ""
    warning: str = ""


def judge(made_with: str, here: str) -> VersionVerdict:
    """Compare the Spark versions of a savepoint and of a job that starts from it.

    ``made_with``: the version that made the savepoint. ``here``: the version that starts from it.
    """
    made, present = _VERSION.match(made_with), _VERSION.match(here)
    if made is None or present is None:
        return VersionVerdict(warning=f"its Spark version {made_with!r} cannot be compared with {here!r}")
    older, newer = _numbers(made), _numbers(present)
    if older == newer:
        return VersionVerdict()
    if older > newer:
        return VersionVerdict(
            refusal=f"it was made with Spark {made_with}; Spark {here} is older and may not be able to read it"
        )
    return VersionVerdict(
        warning=f"it was made with Spark {made_with} and is read by Spark {here}: see Spark's migration guide for "
        f"the versions in between, {MIGRATION_GUIDE}"
    )


def _numbers(match: re.Match[str]) -> tuple[int, int]:
    return int(match.group(1)), int(match.group(2))
