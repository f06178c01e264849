"""REST bodies about the audit log."""

from __future__ import annotations

from emberkeep.protocol.rest import Kebab


class AuditEntry(Kebab, frozen=True, kw_only=True):
    """One entry of the audit log.

    ``identity``: the name of the token's holder; "" without a valid login. ``login``: token, session or none.
    ``target``: what the action was about, by name. ``status``: the HTTP status; 0 without a reply. ``outcome``: done,
    failed, refused or unknown. ``count``: the number of requests that the entry stands for, up to ``time``.
    """

    version: int
    time: str  # UTC, ISO 8601
    id: str
    identity: str
    role: str
    login: str
    address: str
    action: str
    target: dict[str, str]
    parameters: dict[str, str]
    status: int
    outcome: str
    reason: str
    count: int


class AuditList(Kebab, frozen=True, kw_only=True):
    """Entries, newest first. ``next``: the parameter ``before`` for the next page; "" if there are no older entries."""

    entries: list[AuditEntry]
    next: str
