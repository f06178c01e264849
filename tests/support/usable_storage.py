"""A shared storage that is always usable."""

from __future__ import annotations


class UsableStorage:
    """Implements the JobManager's SharedStorage."""

    def __init__(self) -> None:
        self.problem, self.problem_since_ms = "", 0

    async def expect(self) -> None:
        """See SharedStorage."""
