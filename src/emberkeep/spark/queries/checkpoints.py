"""Choose the checkpoint of a streaming query that sets no location, and check that it belongs to that query. Pure.

A named query is identified by its name. An unnamed one is identified by its position among the script's unnamed
queries, in the order of their starts. Its output is recorded next to the checkpoints, to detect a changed order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from emberkeep.lifecycle.manifest import key_of_named
from emberkeep.spark.errors import CheckpointIdentityError

RECORD_NAME = "queries.json"
_RECORD_VERSION = 1
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class QueryIdentity:
    """The output of a query: ``sink`` (format), ``output_mode`` (lower case), ``target`` (path, table, function, …)."""

    sink: str
    output_mode: str
    target: str

    def __str__(self) -> str:
        target = f" {self.target}" if self.target else ""
        return f"{self.sink}{target} ({self.output_mode} mode)"


@dataclass(frozen=True)
class QueryRecord:
    """The unnamed queries recorded so far, by ordinal (0 is the first one started)."""

    unnamed: Mapping[int, QueryIdentity]


def can_recover(sink: str, output_mode: str) -> bool:
    """True if Spark lets a query to this sink continue from a checkpoint."""
    return sink.lower() != "memory" or output_mode.lower() == "complete"


def directory_of_named(name: str) -> str:
    return key_of_named(name)


def directory_of_unnamed(ordinal: int, identity: QueryIdentity) -> str:
    return f"unnamed-{ordinal}-{_PLAIN.sub('_', identity.sink)}-{_PLAIN.sub('_', identity.output_mode)}"


def record_unnamed(record: QueryRecord, ordinal: int, identity: QueryIdentity, root: str) -> QueryRecord:
    """Return the record with this unnamed query; the same object if the query is in it already.

    Raises CheckpointIdentityError if the record has a different query under this ordinal.
    """
    known = record.unnamed.get(ordinal)
    if known is None:
        return replace(record, unnamed={**record.unnamed, ordinal: identity})
    if known != identity:
        raise CheckpointIdentityError(
            f"unnamed streaming query number {ordinal + 1} of the script now writes {identity}, but its checkpoint "
            f"below {root} belongs to a query that writes {known}",
            hint="if queries were added, removed or reordered, give each a .queryName(…) or a checkpointLocation; "
            f"to start from nothing, remove {root}/{RECORD_NAME} and the checkpoints next to it",
        )
    return record


def encode(record: QueryRecord) -> str:
    """Encode the record as JSON text, with version and checksum."""
    body = {
        str(ordinal): {"sink": query.sink, "outputMode": query.output_mode, "target": query.target}
        for ordinal, query in sorted(record.unnamed.items())
    }
    return json.dumps({"version": _RECORD_VERSION, "sha256": _digest(body), "unnamed": body}, indent=2) + "\n"


def decode(text: str, where: str) -> QueryRecord:
    """Decode the text that ``encode`` wrote. Raises CheckpointIdentityError for anything else."""
    try:
        data = json.loads(text)
        version, body, digest = data["version"], data["unnamed"], data["sha256"]
        if version != _RECORD_VERSION:
            raise CheckpointIdentityError(
                f"{where} has format version {version}; this release reads version {_RECORD_VERSION}",
                hint="run the job with the release that wrote it, or a newer one",
            )
        if digest != _digest(body):
            raise ValueError("its checksum does not match")  # noqa: TRY301 - one place says that it is damaged
        unnamed = {
            int(ordinal): QueryIdentity(query["sink"], query["outputMode"], query["target"])
            for ordinal, query in body.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointIdentityError(
            f"{where} is damaged: {error}",
            hint="restore it, or remove it if the order of the script's streaming queries has not changed",
        ) from error
    return QueryRecord(unnamed)


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
