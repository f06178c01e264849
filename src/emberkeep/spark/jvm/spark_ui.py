"""Spark's web page in the driver (the Spark UI): who may open it, and where it listens.

It listens on loopback, and Spark's own filter ``org.apache.spark.ui.JWSFilter`` refuses requests without a token that
is signed with a key of this attempt. So other users of the machine cannot read it; Emberkeep's driver process can.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping

FILTERS = "spark.ui.filters"
_FILTER = "org.apache.spark.ui.JWSFilter"
_KEY = f"spark.{_FILTER}.param.secretKey"


def access_settings(key: bytes) -> dict[str, str]:
    """Return the default settings that close the page to all who do not have ``key`` (32 bytes)."""
    return {FILTERS: _FILTER, _KEY: _base64url(key)}


def has_own_filter(conf: Mapping[str, str]) -> bool:
    """True if the user has chosen who may open the page."""
    return bool(conf.get(FILTERS)) and _KEY not in conf


def access_token(key: bytes) -> str:
    """Return a token (JSON Web Signature, HMAC-SHA256) that the filter accepts."""
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": "emberkeep"}))
    return f"{signed}.{_base64url(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
