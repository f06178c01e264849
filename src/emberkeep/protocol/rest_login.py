"""REST bodies about logging in to the web page."""

from __future__ import annotations

from emberkeep.protocol.rest import Duration, Kebab


class LoginLink(Kebab, frozen=True, kw_only=True):
    """A link that logs one browser in, once. Append ``path`` to the address of the JobManager ``job-manager``."""

    path: str
    job_manager: str  # host:port
    valid_for: Duration
