"""A savepoint's directory and its manifest. Pure.

```
<target>/savepoint-<job id, 8>-<trigger id, 12>-<attempt>/
    _manifest                     this record, written last: a directory without it is not a savepoint
    _manifest.deleting            the same record once the savepoint is being deleted: no job starts from it any more
    queries/<key>/…               a streaming query's checkpoint in Spark's layout: what its last batch needs
    functions/<number>            what a user function's snapshot_state returned
```

The manifest lists every other file below the directory with its size and SHA-256. So a savepoint can be checked, and
copied to any other place, without Spark and without the cluster that made it.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.errors import SavepointDamaged
from emberkeep.lifecycle.model import Procedure

MANIFEST_NAME = "_manifest"
DELETING_NAME = "_manifest.deleting"
MANIFEST_KIND, MANIFEST_VERSION = "savepoint-manifest", 1
# Spark's watermark at the end of a drain: 9999-12-31T23:59:59.999Z, the latest time that it can express.
MAX_WATERMARK_MS = 253_402_300_799_999

_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_DIRECTORY = re.compile(r"savepoint-[0-9a-f]{8}-([0-9a-f]{12})-[0-9]+")
_LONGEST_NAME = 255  # bytes of a directory's name


class SavepointFile(Compatible, frozen=True, kw_only=True):
    """One file. ``path``: below the savepoint's directory, with "/". ``size`` in bytes, ``sha256`` in hex."""

    path: str
    size: int
    sha256: str


class QuerySavepoint(Compatible, frozen=True, kw_only=True):
    """One streaming query after batch ``batch_id`` (-1: it has committed none).

    ``offsets``: one text per source, as Spark writes it to its offset log. ``drained_from``: the last batch before
    those that a drain planned; -1 without a drain. After a drain ``watermark_ms`` is the watermark from before the
    drain.
    """

    key: str  # its directory below queries/; identifies the query when a job starts from the savepoint
    name: str  # "" for an unnamed query
    query_id: str  # Spark's
    sink: str  # format, as given to the DataStreamWriter
    output_mode: str
    target: str  # path, table, function, …
    location: str  # of the original checkpoint
    batch_id: int
    offsets: tuple[str, ...]
    watermark_ms: int  # of the next batch; 0: none yet
    drained_from: int = -1


class FunctionState(Compatible, frozen=True, kw_only=True):
    """State of one user function. ``name``: the instance that returned it. ``path``: the file that holds it."""

    name: str
    path: str


class Manifest(Compatible, frozen=True, kw_only=True):
    """The contents of a savepoint. Persisted (kind "savepoint-manifest", version 1)."""

    job_id: JobId
    job_name: str
    attempt: int
    trigger_id: str
    procedure: Procedure
    created_ms: int  # Unix milliseconds
    spark_version: str
    emberkeep_version: str
    queries: tuple[QuerySavepoint, ...]
    files: tuple[SavepointFile, ...]
    functions: tuple[FunctionState, ...] = ()

    @property
    def total_size(self) -> int:
        """Bytes of all files without the manifest."""
        return sum(file.size for file in self.files)

    def files_of(self, query: QuerySavepoint) -> tuple[SavepointFile, ...]:
        prefix = query_directory(query.key) + "/"
        return tuple(file for file in self.files if file.path.startswith(prefix))


def described(path: str, data: bytes) -> SavepointFile:
    """Return the manifest's entry for a file that holds ``data``."""
    return SavepointFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def savepoint_directory(target: str, job_id: JobId, trigger_id: str, attempt: int) -> str:
    """Return where an attempt writes the savepoint of a request.

    Each attempt has a directory of its own: an attempt that was stopped while writing may continue after another
    attempt's savepoint was recorded.
    """
    return f"{target.rstrip('/')}/savepoint-{job_id[:8]}-{trigger_id[:12]}-{attempt}"


def is_directory_for(path: str, trigger_id: str) -> bool:
    """True if the last part of ``path`` is a name that ``savepoint_directory`` gives to savepoints of this request."""
    name = _DIRECTORY.fullmatch(path.rstrip("/").rpartition("/")[2])
    return name is not None and name[1] == trigger_id[:12]


def key_of_named(name: str) -> str:
    """Return a named query's key: a directory name that every file system takes, whatever the name's length."""
    key = f"query-{quote(name, safe='')}"
    if len(key) <= _LONGEST_NAME:
        return key
    end = f"-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    begin = "query-"
    for part in (quote(character, safe="") for character in name):
        if len(begin) + len(part) + len(end) > _LONGEST_NAME:
            break
        begin += part
    return begin + end


def key_of_unnamed(ordinal: int, sink: str, output_mode: str) -> str:
    """Return an unnamed query's key.

    ``ordinal``: its number among the script's unnamed queries, in order of start, from 0.
    """
    return f"unnamed-{ordinal}-{_PLAIN.sub('_', sink)}-{_PLAIN.sub('_', output_mode)}"


def query_directory(key: str) -> str:
    return f"queries/{key}"


def function_file(number: int) -> str:
    return f"functions/{number}"


def encode_manifest(manifest: Manifest) -> bytes:
    return encode_record(MANIFEST_KIND, MANIFEST_VERSION, msgspec.json.encode(manifest))


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Read what ``encode_manifest`` wrote.

    Raises NewerFormat, or SavepointDamaged for anything else, naming ``where``.
    """
    try:
        manifest = from_json(decode_record(data, MANIFEST_KIND, MANIFEST_VERSION, where=where), Manifest)
    except NewerFormat as error:
        raise NewerFormat(
            f"the savepoint is intact, but a newer release made it: {error.message}",
            hint="start from it with that release or a newer one",
        ) from None
    except Fatal as error:
        raise SavepointDamaged(error.message, hint=error.hint) from error
    except msgspec.MsgspecError as error:
        raise SavepointDamaged(f"{where}: {error}") from error
    for problem in _problems(manifest):
        raise SavepointDamaged(f"{where}: {problem}")
    return manifest


def manifest_sha256(data: bytes) -> str:
    """Return the hash of the encoded manifest (64 hex digits), which identifies the savepoint."""
    return hashlib.sha256(data).hexdigest()


def _problems(manifest: Manifest) -> list[str]:
    """Return what is wrong with the names: paths that lead out of the savepoint, duplicates, missing files."""
    paths = [file.path for file in manifest.files]
    keys = [query.key for query in manifest.queries]
    found = [f"file {path!r} is outside the savepoint" for path in paths if not _is_below(path)]
    found += [f"query key {key!r} is not a directory name" for key in keys if "/" in key or not _is_below(key)]
    if len(set(paths)) != len(paths) or len(set(keys)) != len(keys):
        found.append("a file or a query is listed twice")
    found += [
        f"the file {each.path!r} of function {each.name!r} is not listed"
        for each in manifest.functions
        if each.path not in paths
    ]
    return found


def _is_below(path: str) -> bool:
    return all(part not in ("", ".", "..") for part in path.split("/")) and "\0" not in path and "\\" not in path
