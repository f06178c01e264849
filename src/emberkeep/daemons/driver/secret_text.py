"""Hides the values of a job's secrets in what its driver reports: an exception may quote them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from emberkeep.jobs.model import AttemptOutcome

HIDDEN = "******"
_SHORTEST = 4  # characters; a shorter text also occurs in unrelated words


class SecretText:
    """Replaces secret values, and the single lines of a value that has several lines."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, *value.splitlines())}
        self._parts = sorted((part for part in parts if len(part) >= _SHORTEST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        for part in self._parts:
            text = text.replace(part, HIDDEN)
        return text

    def without(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome with the values hidden."""
        return msgspec.structs.replace(
            outcome, message=self.hide(outcome.message), traceback=self.hide(outcome.traceback)
        )
