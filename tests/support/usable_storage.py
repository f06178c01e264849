"""A shared storage that is always usable."""

from __future__ import annotations


class UsableStorage:
    """Implements the JobManager's SharedStorage."""

    def __init__(self) -> None:
        self.problem = ""

    async def expect(self) -> None:
        """See SharedStorage."""
