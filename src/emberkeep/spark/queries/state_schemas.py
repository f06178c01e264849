"""Let a checkpoint that was copied or moved refer to its own schemas of state.

Spark writes where the schemas of a `transformWithState` operator are into `state/<operator>/_metadata/v2/<batch>`, as
absolute locations, and takes them over from batch to batch. A checkpoint that was restored from a savepoint, or whose
storage is at another place now, would refer to the earlier checkpoint, which may be gone or belong to another job.

Source: Spark's OperatorStateMetadataV2 and StateSchemaCompatibilityChecker.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable

import structlog

from emberkeep.spark.files.hadoop import HadoopFiles

log = structlog.get_logger(__name__)

_PLACE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://([^/]*))?(.*)", re.DOTALL)
_INSIDE = re.compile(r"/(state/[0-9]+/_stateSchema/[^/]+/[^/]+)\Z")


def refer_to_own_schemas(files: HadoopFiles, location: str, may_commit: Callable[[], None]) -> None:
    """Replace locations of schemas outside the checkpoint with those of its own copies.

    ``location``: of the checkpoint. A location whose file the checkpoint does not have stays as it is. The newest entry
    of an operator is written last, so that a crash in between is made up for by the next start. Raises Fatal, and what
    ``may_commit`` raises.
    """
    for operator in files.numbered(f"{location}/state"):
        directory = f"{location}/state/{operator}/_metadata/v2"
        batches = files.numbered(directory)
        exists = functools.cache(files.exists)  # entries mostly name the same files
        if not batches or own_schemas(files.read_text(f"{directory}/{batches[-1]}"), location, exists) is None:
            continue
        changed = 0
        for batch in batches:
            text = own_schemas(files.read_text(f"{directory}/{batch}"), location, exists)
            if text is not None:
                may_commit()
                files.add_log_entry(f"{directory}/{batch}", text, overwrite=True)
                changed += 1
        log.info("state schemas are the checkpoint's own now", location=location, operator=operator, entries=changed)


def own_schemas(entry: str, location: str, exists: Callable[[str], bool]) -> str | None:
    """Return the entry with the checkpoint's own schemas; None if nothing changes, or if it cannot be read.

    ``exists``: True if there is a file at a location. Spark judges an entry that cannot be read, if it needs it.
    """
    version, _, body = entry.partition("\n")
    try:
        content = json.loads(body)
        stores = content["stateStoreInfo"]
        before = [list(store["stateSchemaFilePaths"]) for store in stores]
    except (ValueError, KeyError, TypeError) as error:
        log.warning("a description of a state operator cannot be read", location=location, reason=str(error))
        return None
    after = [[_own(path, location, exists) for path in paths] for paths in before]
    if after == before:
        return None
    for store, paths in zip(stores, after, strict=True):
        store["stateSchemaFilePaths"] = paths
    return f"{version}\n{json.dumps(content, separators=(',', ':'))}"


def _own(path: str, location: str, exists: Callable[[str], bool]) -> str:
    inside = _INSIDE.search(path)
    if inside is None:
        return path
    own = f"{location}/{inside.group(1)}"
    return path if _place(path) == _place(own) or not exists(own) else own


def _place(location: str) -> tuple[str, str]:
    """Return host and path: `file:/a`, `file:///a` and `/a` are one place.

    A "#" or "?" is part of the path, as in Hadoop's ``Path``.
    """
    found = _PLACE.fullmatch(location)
    assert found is not None, "the pattern fits any text"  # noqa: S101
    return found.group(1) or "", found.group(2)
