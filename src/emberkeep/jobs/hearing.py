"""Decides when a leader may conclude that a silent peer has ended, and when it must suspect that it is itself cut off.

Silence alone proves nothing: a leader that is cut off receives no heartbeats from healthy drivers either. The other
peers distinguish the two cases. Silence is evidence only while most of the leader's peers keep sending. If most of them
fall silent at once, the leader itself is in doubt.

- While no peer sends anything, the leader concludes nothing, for any length of time: it could start nothing anywhere.
- While some peers send, but fewer than fell silent, the doubt ends after a while: that many may really have failed.
"""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId


class Hearing:
    """Contact with the peers: task managers, and their drivers on their behalf. Times are monotonic seconds, passed in.

    ``patience``: time without a message after which a peer counts as silent. It is half of the shortest silence from
    which the leader concludes anything. ``longest_doubt``: the longest time for which the leader doubts itself while
    any peer sends. ``deafness``: time without contact to any peer after which a leader counts as cut off, if it knows
    from the store that peers exist; None if it knows of no peer.
    """

    def __init__(self, now: float, *, patience: float, longest_doubt: float, deafness: float | None = None) -> None:
        self._began = now
        self._patience = patience
        self._longest_doubt = longest_doubt
        self._deafness = deafness
        self._speaking: dict[TaskManagerId, float] = {}  # last contact with each, oldest first
        self._silent: dict[TaskManagerId, float] = {}  # last contact with peers whose silence is not evidence yet
        self._since: float | None = None  # the time since which most peers send; None: in doubt
        self._doubt_since = float("-inf")
        self._again_at = float("-inf")  # when contact began again after there was none

    def heard(self, peer: TaskManagerId, now: float) -> None:
        """Note a message from this peer or one of its drivers."""
        self._review(now)
        if not self._speaking:
            self._again_at = now
        self.left(peer)
        self._speaking[peer] = now

    def left(self, peer: TaskManagerId) -> None:
        """Forget a peer that has shut down."""
        self._speaking.pop(peer, None)
        self._silent.pop(peer, None)

    def since(self, now: float) -> float | None:
        """Return the time from which silence is measured (monotonic seconds), or None while silence proves nothing."""
        self._review(now)
        return self._since

    def resumed(self, now: float) -> None:
        """Measure silence from now: this leader has decided nothing for a while and may have missed messages."""
        self._review(now)
        if self._since is not None:
            self._since = now

    def is_cut_off(self, now: float) -> bool:
        """True if this leader has lost contact with most peers, or never had the contact that it expects.

        Another JobManager may then be the better leader.
        """
        self._review(now)
        if self._since is not None:
            return False
        if self._silent:
            return now - self._doubt_since >= self._patience
        return self._deafness is not None and now - self._began >= self._deafness

    def _review(self, now: float) -> None:
        _move_older(self._speaking, now - self._patience, self._silent)
        doubt = self._is_in_doubt(now)
        if doubt and self._since is not None:
            self._since, self._doubt_since = None, now
        elif not doubt and self._since is None:
            self._since = now
        if not doubt:
            _move_older(self._silent, now - 2 * self._patience, {})

    def _is_in_doubt(self, now: float) -> bool:
        if not self._speaking:
            return True
        if len(self._silent) <= len(self._speaking):
            return False
        if self._since is None and now - max(self._doubt_since, self._again_at) >= self._longest_doubt:
            self._silent.clear()
            return False
        return True


def _move_older(times: dict[TaskManagerId, float], limit: float, to: dict[TaskManagerId, float]) -> None:
    """Move the entries that are as old as ``limit`` or older to ``to``; ``times`` begins with the oldest."""
    while times:
        peer, at = next(iter(times.items()))
        if at > limit:
            return
        to[peer] = times.pop(peer)
