"""The response to a BLOB download: the whole BLOB, or one range of bytes."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from http import HTTPStatus
from io import FileIO
from pathlib import Path

from aiohttp import hdrs, web

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.blobs.model import BlobKey
from emberkeep.rest.serving.transfers import send_file

# Up to this size, read and send in one piece: cheaper than sendfile, and too little to delay the event loop.
_SMALL = 64 * 1024  # bytes
# No browser may render the bytes as a page, whatever they are.
_HEADERS = {
    hdrs.CONTENT_TYPE: "application/octet-stream",
    hdrs.CONTENT_DISPOSITION: "attachment",
    "X-Content-Type-Options": "nosniff",
    hdrs.ACCEPT_RANGES: "bytes",
}


@dataclass
class Sent:
    """Outcome of a download: number of bytes sent. ``complete`` is True if they were the whole BLOB."""

    count: int = 0
    complete: bool = False


async def send_blob(request: web.Request, key: BlobKey, path: Path, sent: Sent | None = None) -> web.StreamResponse:
    """Respond with the verified file or a range of it, and record in ``sent`` how much was sent (nothing for HEAD).

    Raises Absent (the file has just been deleted), RetryLater (this process has too many open files),
    HTTPRequestRangeNotSatisfiable (the range is invalid or beyond the end).
    """
    sent = Sent() if sent is None else sent
    with _open(path, key) as source:
        size = os.fstat(source.fileno()).st_size
        if request.method == hdrs.METH_HEAD:
            return web.Response(headers={**_HEADERS, hdrs.CONTENT_LENGTH: str(size)})
        status, headers, start, count = HTTPStatus.OK, _HEADERS, 0, size
        if hdrs.RANGE in request.headers:
            start, count = _range(request, size)
            status = HTTPStatus.PARTIAL_CONTENT
            headers = {**_HEADERS, hdrs.CONTENT_RANGE: f"bytes {start}-{start + count - 1}/{size}"}
        if count <= _SMALL:
            response: web.StreamResponse = web.Response(
                body=os.pread(source.fileno(), count, start), status=status, headers=headers
            )
            sent.count = count
        else:
            response = web.StreamResponse(status=status, headers=headers)
            response.content_length = count
            sent.count = await send_file(response, request, source, start, count)
        sent.complete = sent.count == size
        return response


def _open(path: Path, key: BlobKey) -> FileIO:
    try:
        return FileIO(path)
    except FileNotFoundError:
        raise Absent(f"BLOB {key} has just been deleted") from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise RetryLater("this process has reached its limit of open files", hint="try again in a second") from None
        raise


def _range(request: web.Request, size: int) -> tuple[int, int]:
    """Return the range's first byte and number of bytes.

    Raises HTTPRequestRangeNotSatisfiable if the range is invalid or contains no byte of the BLOB.
    """
    try:
        wanted = request.http_range
    except ValueError:
        wanted = slice(size, None, 1)
    start, stop, _ = wanted.indices(size)
    if start >= stop:
        refusal = web.HTTPRequestRangeNotSatisfiable(text=f"the range is outside the {size} bytes of the BLOB")
        refusal.headers[hdrs.CONTENT_RANGE] = f"bytes */{size}"
        raise refusal
    return start, stop - start
