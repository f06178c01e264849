"""Announces on a daemon's standard output, in one line of JSON, that the daemon serves or why it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from emberkeep.base.errors import EmberkeepError


def announce_ready(url: str, token_file: Path, ca: str) -> None:
    """Announce that the process serves at ``url``. Callers must authenticate with the token in ``token_file``.

    ``ca``: the file with the CAs that verify the process; "" if it does not encrypt.
    """
    _write({"url": url, "token_file": str(token_file), "ca": ca})


def announce_failure(error: EmberkeepError) -> None:
    """Announce that the process ends because it cannot serve."""
    _write({"error": error.message, "hint": error.hint})


def _write(line: dict[str, str | None]) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()
