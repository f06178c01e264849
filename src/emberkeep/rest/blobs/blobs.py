"""BLOBs of jobs: files, off-loaded messages and logs, named by the SHA-256 of their content (BLOB-1).

A file name that a client chose is never part of a path.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta, field

from emberkeep.base.configuration.options.blobs import BLOB_MAX_SIZE
from emberkeep.base.errors import InvalidInput
from emberkeep.base.identity import Role
from emberkeep.jobmanager.views.blobs import BlobView
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.protocol.rest_blobs import (
    ATTEMPT_HEADER,
    BLOB_PEER_HEADER,
    BlobCheck,
    BlobCollection,
    BlobGroup,
    BlobGroupOpened,
    BlobInfo,
    BlobList,
    BlobProblem,
    BlobStored,
)
from emberkeep.rest.blobs.response import Sent, send_blob
from emberkeep.rest.serving.blob_holders import MAX_HOLDERS, parse_attempt, parse_holder
from emberkeep.rest.serving.request_bodies import stream_body, too_large
from emberkeep.rest.serving.routing import CheckedRequest, Header, Route

MAX_GROUP: Final = 10_000  # BLOBs

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIZE = Header("Content-Length", "Bytes of the content, or of the range.")
_RANGE = Header("Range", "One range of bytes, `bytes=0-1023`; the reply then has status 206.")
_ATTEMPT = Header(
    ATTEMPT_HEADER,
    "The attempt of the job for which the sender acts. The request is refused once that attempt is over.",
)
_PEER = Header(BLOB_PEER_HEADER, "Address (host:port) of the requesting task manager's own cache.")


class UploadParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of an upload."""

    holder: Annotated[
        list[str],
        Meta(
            max_length=MAX_HOLDERS,
            description="Name of a holder that references the transient BLOB from now on; may be repeated.",
        ),
    ] = field(default_factory=list)


class Download(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a download."""

    direct: Annotated[bool, Meta(description="Send the content; do not redirect to another cache.")] = False


async def open_group(call: CheckedRequest) -> msgspec.Struct:
    group: BlobGroup = call.body
    limit = call.api.configuration[BLOB_MAX_SIZE]
    if len(group.blobs) > MAX_GROUP:
        raise InvalidInput(f"{len(group.blobs)} BLOBs are more than the {MAX_GROUP} of one group", field="blobs")
    for index, content in enumerate(group.blobs):
        if not _SHA256.fullmatch(content.sha256):
            raise InvalidInput(
                f"{content.sha256[:80]!r} is not a SHA-256",
                field=f"blobs[{index}].sha256",
                hint="64 lower-case hex digits",
            )
        if not 0 <= content.size <= limit:
            raise InvalidInput(
                f"{content.size} bytes: not from 0 to {limit}",
                field=f"blobs[{index}].size",
                hint="see blob.max-size",
            )
    return BlobGroupOpened(missing=list(await call.api.blobs.open_group(call.path["jobid"], group.blobs)))


async def put(call: CheckedRequest) -> msgspec.Struct:
    request, owner, key = call.request, call.path["jobid"], call.path["key"]
    holders = [parse_holder(name) for name in call.query.holder]
    attempt = parse_attempt(request.headers.get(ATTEMPT_HEADER))
    if holders and key.is_permanent:
        raise InvalidInput("a permanent BLOB is referenced by its job alone", field="holder")
    limit, announced = call.api.configuration[BLOB_MAX_SIZE], request.content_length
    if announced is not None and announced > limit:
        raise too_large(limit, announced)
    async with call.api.uploads.place():
        size = await call.api.blobs.upload(
            owner, key, stream_body(request, limit), size=announced, holders=holders, attempt=attempt
        )
    return BlobStored(jobid=owner, key=str(key), size=size)


async def head(call: CheckedRequest) -> web.StreamResponse:
    owner, key = call.path["jobid"], call.path["key"]
    async with call.api.downloads.place():
        return await send_blob(call.request, key, await call.api.blobs.path(owner, key))


async def get(call: CheckedRequest) -> web.StreamResponse:
    owner, key, blobs = call.path["jobid"], call.path["key"], call.api.blobs
    requester = await call.api.peers.known(call.request.headers.get(BLOB_PEER_HEADER))
    if requester and call.query.direct:
        blobs.redirects.peer_failed(owner, key, requester)
    elif requester:
        peer = await call.api.peers.instead(owner, key, requester)
        if peer is not None:
            location = f"{call.request.scheme}://{peer}{API_PREFIX}/jobs/{owner}/blobs/{key}"
            return web.Response(status=307, headers={hdrs.LOCATION: location})
    sent = Sent()
    try:
        async with call.api.downloads.place():
            return await send_blob(call.request, key, await blobs.path(owner, key), sent)
    finally:
        blobs.redirects.download_ended(owner, key, requester, sent=sent.count, complete=sent.complete)


async def ready(call: CheckedRequest) -> web.StreamResponse:
    requester = await call.api.peers.known(call.request.headers.get(BLOB_PEER_HEADER))
    if not requester:
        raise InvalidInput("no registered task manager has its cache there", field=BLOB_PEER_HEADER)
    call.api.blobs.redirects.peer_ready(call.path["jobid"], call.path["key"], requester)
    return web.Response(status=204)


async def acknowledge(call: CheckedRequest) -> web.StreamResponse:
    attempt = parse_attempt(call.request.headers.get(ATTEMPT_HEADER))
    call.api.blobs.release(call.path["jobid"], call.path["key"], call.path["holder"], attempt)
    return web.Response(status=204)


async def list_all(call: CheckedRequest) -> msgspec.Struct:
    return _listing(await call.api.blobs.blobs())


async def list_of_job(call: CheckedRequest) -> msgspec.Struct:
    return _listing(await call.api.blobs.blobs(call.path["jobid"]))


def _listing(views: list[BlobView]) -> BlobList:
    infos = [
        BlobInfo(
            jobid=view.owner,
            key=str(view.key),
            size=view.size,
            local=view.in_local_store,
            ha=view.in_ha_store,
            references=list(view.references),
            state=view.state,
        )
        for view in views
    ]
    return BlobList(blobs=infos, bytes=sum(view.size for view in views))


async def verify(call: CheckedRequest) -> msgspec.Struct:
    async with call.api.verifications.place():
        found = await call.api.blobs.verify(call.path.get("jobid"))
    problems = [
        BlobProblem(jobid=item.owner, key=str(item.key), store=item.store, problem=item.problem, healed=item.healed)
        for item in found.findings
    ]
    return BlobCheck(checked=found.checked, bytes=found.bytes, problems=problems)


async def collect(call: CheckedRequest) -> msgspec.Struct:
    return BlobCollection(deleted=await call.api.blobs.collect())


_OF_JOB = "/jobs/{jobid}/blobs"
_ONE = _OF_JOB + "/{key}"

ROUTES = (
    Route(
        "POST",
        _OF_JOB,
        open_group,
        "Announce BLOBs that belong together, before their job is submitted",
        "BLOBs",
        role=Role.SUBMITTER,
        reply=BlobGroupOpened,
        body=BlobGroup,
        problems=(409, 413, 415, 503),
        doc="The client chooses the job id: any id that no job has had, or 32 zeros for BLOBs that belong to no job, "
        "which are closed to tokens with a namespace. "
        "Once the last BLOB of the group has arrived, all of them are kept for at least `blob.retention.interval`; "
        "submit the job within that time.",
    ),
    Route(
        "GET", _OF_JOB, list_of_job, "The BLOBs of one job", "BLOBs", role=Role.VIEWER, reply=BlobList, problems=(503,)
    ),
    Route(
        "PUT",
        _ONE,
        put,
        "Upload a BLOB",
        "BLOBs",
        role=Role.SUBMITTER,
        status=201,
        reply=BlobStored,
        raw_body="The content itself. The server refuses it if its SHA-256 differs from the key.",
        query=UploadParameters,
        drivers=True,
        headers=(_ATTEMPT,),
        problems=(408, 409, 413, 415, 503, 507),
        doc="A repeated upload does no harm. `blob.max-size` limits the size. The server cuts off a client that sends "
        "nothing for 30 s, or less than 16 KiB/s.",
    ),
    Route(
        "HEAD",
        _ONE,
        head,
        "Check whether a BLOB exists; get its size",
        "BLOBs",
        role=Role.VIEWER,
        media="application/octet-stream",
        reply_headers=(_SIZE,),
        problems=(404, 503),
    ),
    Route(
        "GET",
        _ONE,
        get,
        "Download a BLOB",
        "BLOBs",
        role=Role.OPERATOR,
        media="application/octet-stream",
        query=Download,
        drivers=True,
        headers=(_RANGE, _PEER),
        reply_headers=(_SIZE,),
        also=(206, 307),
        problems=(404, 416, 503),
        doc="A task manager that names its own cache may get 307: download the BLOB from that peer, and if the peer "
        "fails, from this resource with `direct=true`.",
    ),
    Route(
        "POST",
        _ONE + "/ready",
        ready,
        "Report that a task manager's cache has a BLOB and serves it to other caches",
        "BLOBs",
        role=Role.SUBMITTER,
        status=204,
        headers=(_PEER,),
        problems=(503,),
    ),
    Route(
        "DELETE",
        _ONE + "/holders/{holder}",
        acknowledge,
        "Release a reference",
        "BLOBs",
        role=Role.OPERATOR,
        status=204,
        drivers=True,
        headers=(_ATTEMPT,),
        problems=(409, 503),
        doc="A missing reference is not an error.",
    ),
    Route(
        "GET",
        "/blobs",
        list_all,
        "All BLOBs that the server knows of",
        "BLOBs",
        role=Role.VIEWER,
        reply=BlobList,
        problems=(503,),
    ),
    Route(
        "POST",
        "/blobs/verify",
        verify,
        "Read every BLOB in both stores and repair damaged copies",
        "BLOBs",
        role=Role.OPERATOR,
        reply=BlobCheck,
        problems=(503,),
        doc="The reply comes when all BLOBs have been read.",
    ),
    Route(
        "POST",
        _OF_JOB + "/verify",
        verify,
        "Read every BLOB of one job in both stores and repair damaged copies",
        "BLOBs",
        role=Role.OPERATOR,
        reply=BlobCheck,
        operation="verify_job",
        problems=(503,),
    ),
    Route(
        "POST",
        "/blobs/gc",
        collect,
        "Run the staged clean-up once, now",
        "BLOBs",
        role=Role.OPERATOR,
        reply=BlobCollection,
        problems=(503,),
        doc="It deletes the BLOBs that an earlier run staged, and stages those that are now unreferenced.",
    ),
)
