"""What the executors of a history have found of their jobs' files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SeenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a job's file ``seen``, see ``executor``. ``whole``: True if it was the file that was submitted."""

    attempt: int
    executor: str
    pid: int
    at: float
    name: str
    whole: bool


def read_seen(data: bytes) -> tuple[SeenFile, ...]:
    """Return what the executors of one job have found, without a line that its writer did not finish."""
    return tuple(msgspec.json.decode(line, type=SeenFile) for line in data.split(b"\n")[:-1])


def judge_seen(seen: Sequence[SeenFile]) -> list[str]:
    """Return the violations of one job."""
    return [
        f"executor {each.executor} of attempt {each.attempt} has not found {each.name} as it was submitted, at "
        f"{each.at:.3f}"
        for each in seen
        if not each.whole
    ]
