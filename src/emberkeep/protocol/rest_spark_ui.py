"""REST schema of a page of a driver's Spark UI."""

from __future__ import annotations

from emberkeep.protocol.rest import Duration, Kebab


class SparkUiPage(Kebab, frozen=True, kw_only=True):
    """A page as Spark returned it. ``location``: the path that it redirects to; "" if it does not redirect."""

    status: int
    content_type: str
    location: str
    body: bytes


class SparkUiLink(Kebab, frozen=True, kw_only=True):
    """A link to the Spark UI of an attempt. It works in the browser that opens it first, for ``valid_for``."""

    url: str
    attempt: int
    valid_for: Duration
