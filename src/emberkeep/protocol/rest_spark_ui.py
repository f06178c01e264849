"""REST schema of a page of a driver's Spark UI."""

from __future__ import annotations

from emberkeep.protocol.rest import Kebab


class SparkUiPage(Kebab, frozen=True, kw_only=True):
    """A page as Spark returned it. ``location``: the path that it redirects to; "" if it does not redirect."""

    status: int
    content_type: str
    location: str
    body: bytes
