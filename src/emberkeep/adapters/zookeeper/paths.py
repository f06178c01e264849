"""Creates a cluster's persistent nodes if they are missing. With ``creator_only``, checks who else may use them.

A node that others may use is an error. While the operator lets this cluster sign the records of another release, such a
node is restricted instead: that release left its nodes open.

Only missing nodes are created, so CREATE permission is needed only on the parent of the topmost one. Nodes above the
cluster's own node are shared with other clusters, which create their nodes next to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from kazoo.security import ACL, CREATOR_ALL_ACL, make_acl, make_digest_acl_credential

from emberkeep.adapters.zookeeper.access.settings import ZooKeeperLogin
from emberkeep.adapters.zookeeper.access.signatures import UnsignedRecords
from emberkeep.adapters.zookeeper.errors import Denied
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.configuration.options.high_availability import (
    ZOOKEEPER_ACL,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_RECORDS,
    ZOOKEEPER_ROOT,
)
from emberkeep.base.errors import Absent, Conflict, Fatal

# Others may create their clusters below a shared node. Only its creator may delete or write it, or change its ACL.
_SHARED_ACL = (*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True))


_BATCH = 500  # nodes checked together

log = structlog.get_logger(__name__)


async def make_paths(session: ZooKeeperSession, layout: ZooKeeperLayout) -> None:
    """Create the cluster's persistent nodes that are missing; with ``creator_only``, check that only we may use them.

    Raises RetryLater, UnknownOutcome, and Fatal if the chroot does not exist, if ZooKeeper denies access, or if nodes
    that must be this cluster's alone are open to others.
    """
    if not await session.exists("/"):
        raise Fatal(
            f"{ZOOKEEPER_QUORUM.key}: {session.hosts} names a path in ZooKeeper that does not exist",
            hint="create the path there, or remove it from the setting",
        )
    for path in layout.persistent:
        await _make(session, layout, path)
    if session.settings.creator_only:
        for path in (layout.base, *layout.persistent):
            await _check(session, path)


async def check_access(session: ZooKeeperSession, layout: ZooKeeperLayout) -> None:
    """With ``creator_only``, check that only this cluster may use the records of jobs.

    Raises what ``make_paths`` raises.
    """
    if not session.settings.creator_only:
        return
    records = [path async for path in _records(session, layout)]
    for start in range(0, len(records), _BATCH):
        await asyncio.gather(*(_check(session, path) for path in records[start : start + _BATCH]))


async def _records(session: ZooKeeperSession, layout: ZooKeeperLayout) -> AsyncIterator[str]:
    """Yield the paths of all persistent nodes below those of ``layout.persistent``, and the ownership record's."""
    yield layout.owner
    for folder in layout.records:
        for name in await session.children(folder):
            yield f"{folder}/{name}"


async def _make(session: ZooKeeperSession, layout: ZooKeeperLayout, path: str) -> None:
    if await session.exists(path):
        return
    parent = path.rpartition("/")[0]
    if parent:
        await _make(session, layout, parent)
    is_shared = session.settings.creator_only and layout.base.startswith(f"{path}/")
    try:
        with contextlib.suppress(Conflict):
            await session.create(path, b"", acl=_SHARED_ACL if is_shared else None)
    except Denied as error:
        raise Denied(
            f"cannot create {path}: ZooKeeper denied access",
            hint=f"ask the owner of {parent or '/'} to grant CREATE there (setAcl {parent or '/'} world:anyone:cr, in "
            f"addition to the owner's rights), or set {ZOOKEEPER_ROOT.key} to a path where this cluster may create "
            "nodes",
        ) from error


async def _check(session: ZooKeeperSession, path: str) -> None:
    strangers = await _strangers(session, path)
    if strangers and session.settings.signer.unsigned is UnsignedRecords.SIGN:
        log.warning("restricting a node in ZooKeeper to this cluster", path=path, was_open_to=strangers)
        with contextlib.suppress(Absent):
            await session.set_acls(path, CREATOR_ALL_ACL)
        strangers = await _strangers(session, path)
    if strangers:
        raise Fatal(
            f"only this cluster may use its nodes in ZooKeeper, but {path} is open to {strangers}",
            hint=f"check the nodes there, then restrict access (zkCli: setAcl -R {path} auth::cdrwa after addauth), or "
            f"set {ZOOKEEPER_RECORDS.key} to {UnsignedRecords.SIGN.value} for one start, or {ZOOKEEPER_ACL.key} to "
            "open",
        )


async def _strangers(session: ZooKeeperSession, path: str) -> str:
    """Return the names of those who may use the node besides this cluster; "" if no others may, or there is no node."""
    try:
        found = await session.acls(path)
    except Absent:
        return ""
    entries = (entry for entry in found if entry.perms and not _is_own(entry, session.settings.login))
    return ", ".join(sorted({f"{entry.id.scheme}:{entry.id.id}" for entry in entries}))


def _is_own(entry: ACL, login: ZooKeeperLogin) -> bool:
    """True if an access right belongs to this cluster.

    With schemes other than digest, only the server knows the names, so every right counts as this cluster's, except
    those for everybody.
    """
    scheme, credentials = login.parts
    if scheme != "digest" or login.sasl:
        return bool(entry.id.scheme != "world")
    user, _, password = credentials.partition(":")
    return bool(entry.id.scheme == "digest" and entry.id.id == make_digest_acl_credential(user, password))
