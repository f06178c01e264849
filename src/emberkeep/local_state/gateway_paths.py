"""Addresses of a job's state: one URI that the gateway of every node resolves to the same durable location.

```
swebhdfs://localhost/<job id>/own/<rest>              <rest> below the job's own root
swebhdfs://localhost/<job id>/at-<location>/<rest>    <rest> below a location that the script named
```

A cluster that does not encrypt has ``webhdfs`` instead.

The location is URL-safe Base64 without padding, so that it is one part of the path. Each durable file has exactly one
URI. A location below the job's own root has the second form only if its name is not ASCII: Hadoop's client puts such a
name into its requests unencoded, and no HTTP server accepts that.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from urllib.parse import unquote

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.model import StatePath

AUTHORITY = "localhost"  # the gateway's name for Hadoop's client, see docs/local-state.md
OWN = "own"
_AT = "at-"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_OBJECT_STORES = ("s3", "gs", "az")
_LONGEST_LOCATION = 1024  # bytes; Base64 adds a third, and file systems allow 255 to 4096 bytes per path
_LONGEST_PATH = 4096  # characters


def gateway_address(*, encrypts: bool) -> str:
    """Return what the URIs of all jobs begin with. ``encrypts``: the cluster encrypts its links."""
    return f"{'swebhdfs' if encrypts else 'webhdfs'}://{AUTHORITY}"


def gateway_uri(gateway: str, job_id: JobId, location: str, own_root: str) -> str:
    """Return the URI under which the job's processes reach a durable location.

    ``gateway``: see ``gateway_address``.
    ``location``: an absolute path, file:///path, s3://, gs:// or az://bucket/path, as the script named it.
    ``own_root``: location of the job's own root. The path in the result is as Hadoop's ``Path`` takes it, with nothing
    escaped. Raises InvalidInput: another scheme, a relative path, a part "." or "..", too long.
    """
    wanted, own = durable_location(location), durable_location(own_root)
    base = f"{gateway}/{job_id}"
    below = _below(wanted, own)
    if below is not None and below.isascii():
        return f"{base}/{OWN}/{below}".rstrip("/")
    encoded = base64.urlsafe_b64encode(wanted.encode()).decode().rstrip("=")
    return f"{base}/{_AT}{encoded}"


def state_path(location: str, own_root: str) -> StatePath:
    """Return the state path of a durable location: what ``resolve`` makes of its URI. Raises InvalidInput."""
    wanted, own = durable_location(location), durable_location(own_root)
    below = _below(wanted, own)
    if below is not None and below.isascii():
        return StatePath(root=own, name=below)
    return StatePath(root=wanted, name="")


def resolve(job_id: JobId, path: str, own_root: str) -> StatePath:
    """Return the state path that a path at the gateway stands for, for a process of ``job_id``.

    ``path``: decoded, beginning with "/". Raises InvalidInput: a path of another job, no such root, a part "." or "..",
    or a location in a form that ``gateway_uri`` does not write.
    """
    if len(path) > _LONGEST_PATH or "\0" in path:
        raise _malformed(path, "it is too long or holds a NUL")
    parts = path.split("/")
    if parts[0] or len(parts) < 3:
        raise _malformed(path, "expected /<job id>/own/… or /<job id>/at-<location>/…")
    if parts[1] != job_id:
        raise InvalidInput(
            f"{path[:200]!r} does not belong to job {job_id}", field="path", hint="a job may use its own state only"
        )
    name = [part for part in parts[3:] if part]
    if any(part in (".", "..") for part in name):
        raise _malformed(path, 'it has a part "." or ".."')
    own = durable_location(own_root)
    if parts[2] == OWN:
        return StatePath(root=own, name="/".join(name))
    if not parts[2].startswith(_AT):
        raise _malformed(path, "expected /<job id>/own/… or /<job id>/at-<location>/…")
    root = _decoded(path, parts[2].removeprefix(_AT))
    below = _below(root, own)
    if below is not None and below.isascii():
        raise _malformed(path, f"it is below the job's own root: expected /{job_id}/{OWN}/…")
    if below is None and _below(root, own.rpartition("/")[0]) is not None:
        raise InvalidInput(
            f"{root[:200]!r} does not belong to job {job_id}", field="path", hint="a job may use its own state only"
        )
    return StatePath(root=root, name="/".join(name))


@functools.lru_cache(maxsize=4096)
def durable_location(location: str) -> str:
    """Return the canonical form of a location: an absolute path or scheme://bucket/path, no trailing or double "/".

    Raises InvalidInput.
    """
    scheme, rest = "", location
    match = _SCHEME.fullmatch(location)
    if match is not None:
        scheme, rest = match.group(1).lower(), match.group(2)
    if "\0" in location or not 0 < len(location.encode("utf-8", "replace")) <= _LONGEST_LOCATION:
        raise _unusable(location, f"it is empty, longer than {_LONGEST_LOCATION} bytes, or holds a NUL")
    if any("\ud800" <= character <= "\udfff" for character in location):
        raise _unusable(location, "it is not UTF-8")
    if scheme in _OBJECT_STORES:
        parts = _parts(location, rest.removeprefix("//"))
        if not rest.startswith("//") or rest.startswith("///") or not parts:
            raise _unusable(location, f"expected {scheme}://bucket/path")
        return f"{scheme}://{'/'.join(parts)}"
    if scheme == "file":
        rest = unquote(_without_host(location, rest))
    elif scheme:
        raise _unusable(location, f"{scheme}: is not a known kind of durable store")
    if not rest.startswith("/"):
        raise _unusable(location, "it is not absolute")
    return "/" + "/".join(_parts(location, rest))


def _without_host(location: str, rest: str) -> str:
    """Return the path part: file:/path, file:///path and file://localhost/path mean the same."""
    if not rest.startswith("//"):
        return rest
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost"):
        raise _unusable(location, "it names another host")
    return slash + path


def _parts(location: str, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise _unusable(location, 'it has a part "." or ".."')
    return parts


def _below(location: str, root: str) -> str | None:
    """Return the name of ``location`` below ``root``; "" for the root itself; None if it is not below the root."""
    if location == root:
        return ""
    prefix = root.rstrip("/") + "/"
    return location.removeprefix(prefix) if location.startswith(prefix) else None


def _decoded(path: str, encoded: str) -> str:
    try:
        location = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise _malformed(path, "its location is not Base64 text") from None
    again = base64.urlsafe_b64encode(location.encode()).decode().rstrip("=")
    if again != encoded or durable_location(location) != location:
        raise _malformed(path, "its location does not have the form that the gateway writes")
    return location


def _malformed(path: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{path[:200]!r} is not a path of a state gateway: {problem}", field="path")


def _unusable(location: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"{location[:200]!r} cannot hold state: {problem}",
        field="checkpointLocation",
        hint="an absolute path, file:///path, s3://bucket/path, gs:// or az://",
    )
