"""What bodies of the REST API share.

The bodies of each resource are in a module of their own, beside this one. Where Flink has the same thing, bodies have
the same form as Flink's; Emberkeep's own fields are below ``emberkeep``.

Times are Unix milliseconds and durations are milliseconds; -1 where Flink has -1 ("has not happened"). Readers ignore
fields that they do not know, so a newer JobManager can serve an older client. Requests with unknown fields are refused.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

API_PREFIX = "/v1"
PROBLEM_MEDIA_TYPE = "application/problem+json"

Millis: TypeAlias = Annotated[int, Meta(description="Unix time in milliseconds, -1 when it has not happened")]
Duration: TypeAlias = Annotated[int, Meta(description="milliseconds")]


class Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Replies with hyphenated names (Flink's older ones, and our own)."""


class Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replies with camel-case names (Flink's newer ones)."""


class Empty(msgspec.Struct, frozen=True):
    """``{}``: done or accepted."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457), with Flink's ``errors`` list.

    ``field`` names the invalid part of the request: a path such as ``artefacts[0].sha256``, a query parameter or a
    header.
    """

    title: str
    status: int
    detail: str
    errors: list[str]
    type: str = "about:blank"
    field: str | None = None
    hint: str | None = None
