"""What became of one push."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PushOutcome:
    """``problem``: why not all metrics have arrived, or "". ``pause``: seconds that the endpoint asks to wait."""

    problem: str = ""
    pause: float = 0.0
