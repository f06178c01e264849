"""Creates a cluster's persistent nodes if they are missing. With ``creator_only``, refuses nodes that others may use.

Only missing nodes are created, so CREATE permission is needed only on the parent of the topmost one. Nodes above the
cluster's own node are shared with other clusters, which create their nodes next to it.
"""

from __future__ import annotations

import contextlib

from kazoo.security import ACL, CREATOR_ALL_ACL, make_acl, make_digest_acl_credential

from emberkeep.adapters.zookeeper.errors import Denied
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout
from emberkeep.adapters.zookeeper.session import SessionSettings, ZooKeeperSession
from emberkeep.base.configuration.options import ZOOKEEPER_ACL, ZOOKEEPER_QUORUM, ZOOKEEPER_ROOT
from emberkeep.base.errors import Conflict, Fatal

# Others may create their clusters below a shared node. Only its creator may delete or write it, or change its ACL.
_SHARED_ACL = (*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True))


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
    strangers = [entry for entry in await session.acls(path) if entry.perms and not _is_own(entry, session.settings)]
    if strangers:
        names = ", ".join(sorted({f"{entry.id.scheme}:{entry.id.id}" for entry in strangers}))
        raise Fatal(
            f"{ZOOKEEPER_ACL.key} is creator, but ZooKeeper's node {path} is open to {names}",
            hint=f"check the nodes there, then restrict access (zkCli: setAcl -R {path} auth::cdrwa after addauth), or "
            f"set {ZOOKEEPER_ACL.key} to open",
        )


def _is_own(entry: ACL, settings: SessionSettings) -> bool:
    """True if an access right belongs to this cluster.

    With schemes other than digest, only the server knows the names, so every right counts as this cluster's, except
    those for everybody.
    """
    scheme, _, credentials = settings.authorization.partition(":")
    if scheme != "digest":
        return bool(entry.id.scheme != "world")
    user, _, password = credentials.partition(":")
    return bool(entry.id.scheme == "digest" and entry.id.id == make_digest_acl_credential(user, password))
