"""One entry of the audit log: who did what, to what, from where, and how it ended.

The fields are the columns of a public file format. A new field has a default. ``FORMAT`` rises when the meaning of an
existing field changes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from emberkeep.base.inert_text import inert

FORMAT: Final = 1
MOST_TEXT: Final = 500  # characters of one value
MOST_NUMBER: Final = 999_999  # of an id: ids are compared as texts, so all numbers have six digits
DRIVER_ROLE: Final = "driver"  # in place of a role: an attempt's credentials are good for its own job only


class Outcome(StrEnum):
    """How a request has ended."""

    DONE = "done"
    FAILED = "failed"  # an error: see status and reason
    REFUSED = "refused"  # no valid login, not permitted, or over a quota
    UNKNOWN = "unknown"  # the connection or this process ended before the reply


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log.

    ``id`` and ``time`` are set by the log. Ids grow with time: ``moment_of`` reads the time in them. ``target`` names
    what the action was about, such as ``jobid``, ``nodeid`` or ``name``, and ``parameters`` the query. ``status`` is
    the HTTP status; 0 if there was no reply. ``count``: the number of requests for which the entry stands, all up to
    ``time``.
    """

    version: int = FORMAT
    time: str = ""  # UTC, ISO 8601
    id: str = ""
    identity: str  # "" without a valid login
    role: str
    login: str
    address: str
    action: str  # method and route
    target: dict[str, str] = {}
    parameters: dict[str, str] = {}
    status: int
    outcome: str
    reason: str = ""
    count: int = 1


_decoder = msgspec.json.Decoder(Entry)
_encoder = msgspec.json.Encoder()


def encode(entry: Entry) -> bytes:
    """Return the entry as a line of JSON, with its newline."""
    return _encoder.encode(entry) + b"\n"


def decode(line: bytes) -> Entry | None:
    """Return the entry in a line; None for a line that is damaged, or torn by a full disk or a crash."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def outcome_of(status: int) -> Outcome:
    """Return how a request with this HTTP status has ended."""
    if status in (401, 403, 429):
        return Outcome.REFUSED
    if not status:
        return Outcome.UNKNOWN
    return Outcome.FAILED if status >= 400 else Outcome.DONE


def entry_id(time_ms: int, number: int) -> str:
    """Return an id that sorts by time, then by ``number``."""
    return f"{time_ms:013d}-{number:06d}"


def moment_of(identifier: str) -> int:
    """Return the time in an id, in Unix milliseconds; 0 if the id has no time."""
    digits = identifier[:13]
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def shown(text: str) -> str:
    """Return the text without control characters, and not longer than MOST_TEXT."""
    cut = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
    return inert(cut).replace("\n", "\\n").replace("\t", "\\t")
