"""Downloads that are sent on to the caches that have the BLOB, and those that are served here (BLOB-22)."""

from __future__ import annotations

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.peers import Direct
from emberkeep.jobmanager.blobs.core import BlobCore


class BlobRedirects:
    """Implements DownloadRedirects: asks ``blobs.peers.Peers`` about BLOBs that exist, and counts downloads."""

    def __init__(self, core: BlobCore) -> None:
        self._core = core

    def peer_for(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        self._core.machine.state.get(owner, key)
        answer = self._core.peers.ask(owner, key, requester)
        if answer is Direct.WAIT:
            raise RetryLater(
                f"BLOB {key} is being sent to as many caches as the server can serve", hint="try again in a second"
            )
        if answer is Direct.SERVE:
            return None
        self._core.counters.redirected += 1
        return answer

    def peer_failed(self, owner: JobId, key: BlobKey, requester: str) -> None:
        self._core.peers.insist(owner, key, requester)

    def peer_ready(self, owner: JobId, key: BlobKey, peer: str) -> None:
        try:
            self._core.machine.state.get(owner, key)
        except Absent:
            return  # deleted in the meantime
        self._core.peers.ready(owner, key, peer)

    def forget_peer(self, peer: str) -> None:
        self._core.peers.forget_peer(peer)

    def download_ended(self, owner: JobId, key: BlobKey, requester: str, *, sent: int, complete: bool) -> None:
        self._core.counters.downloads += sent > 0 or complete
        self._core.counters.downloaded_bytes += sent
        if requester:
            self._core.peers.served(owner, key, requester, complete=complete)
