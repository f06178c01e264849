"""Parses the location of an object store and opens a client for it.

obstore takes credentials, region and endpoint from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
AWS_ALLOW_HTTP, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, …).
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from emberkeep.base.errors import Fatal

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_RETRIES = 4
_RETRY_SECONDS = 20.0
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PREFIX = re.compile(r"[A-Za-z0-9._=/-]*")

ObjectStore: TypeAlias = S3Store | GCSStore | AzureStore


class ObjectLocation(NamedTuple):
    kind: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/")


def parse_object_location(location: str, what: str) -> ObjectLocation:
    """Return the parts of ``location``. ``what``: what messages call it.

    Raises Fatal if it is malformed. The message does not repeat the location, which may hold a secret.
    """
    parts = urlsplit(location)
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment or not _PREFIX.fullmatch(prefix):
        raise Fatal(
            f"{what}'s location does not have the form {parts.scheme}://bucket/prefix",
            hint="set credentials and endpoint in the environment, not in the location",
        )
    return ObjectLocation(parts.scheme.lower(), parts.netloc, prefix)


def open_object_store(location: ObjectLocation) -> ObjectStore:
    """Return a client, without contacting the store. Raises what obstore raises."""
    retry: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    prefix = location.prefix or None
    if location.kind == "gs":
        return GCSStore(location.bucket, prefix=prefix, retry_config=retry)
    if location.kind == "az":
        return AzureStore(location.bucket, prefix=prefix, retry_config=retry)
    # Each upload carries its SHA-256, and S3 refuses content that does not match it.
    checksum = os.environ.get("AWS_CHECKSUM_ALGORITHM", "SHA256")
    return S3Store(
        location.bucket,
        prefix=prefix,
        checksum_algorithm=checksum,
        # On S3, a copy that must not replace is an upload in parts, whose last request carries the condition.
        copy_if_not_exists="multipart",
        retry_config=retry,
    )
