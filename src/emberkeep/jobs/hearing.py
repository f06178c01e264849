"""Whether a leader may take silence for an end, or has reason to think that it is itself cut off.

Silence proves nothing by itself: a leader that nobody can reach hears of healthy drivers as little as of dead ones.
What tells the two apart is whether others are heard meanwhile. So silence counts only as long as most of those who
speak to this leader go on speaking; when most of them fall silent at once, it is the leader that is in doubt.

- While nobody at all is heard, nothing is concluded, however long that lasts: nothing could be started anywhere.
- While some are heard, but fewer than fell silent, the doubt ends after a while: so much may really be gone.
"""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId


class Hearing:
    """Peers are task managers; their drivers speak for them too. Times are monotonic seconds, passed in.

    ``patience``: silence of a peer that is noticed; half of the shortest silence from which anything is concluded.
    ``longest_doubt``: while somebody is heard. ``deafness``: of a leader that knows from the store that somebody is
    there, and never heard anybody, until it counts as cut off; None: it knows of nobody.
    """

    def __init__(self, now: float, *, patience: float, longest_doubt: float, deafness: float | None = None) -> None:
        self._began = now
        self._patience = patience
        self._longest_doubt = longest_doubt
        self._deafness = deafness
        self._speaking: dict[TaskManagerId, float] = {}  # when each was heard last, oldest first
        self._silent: dict[TaskManagerId, float] = {}  # likewise: those whose silence is not believed yet
        self._since: float | None = None  # most are heard; None: in doubt
        self._doubt_since = float("-inf")
        self._again_at = float("-inf")  # when somebody was heard again, after nobody was

    def heard(self, peer: TaskManagerId, now: float) -> None:
        """It has said something, or a driver of its."""
        self._review(now)
        if not self._speaking:
            self._again_at = now
        self.left(peer)
        self._speaking[peer] = now

    def left(self, peer: TaskManagerId) -> None:
        """It has said goodbye."""
        self._speaking.pop(peer, None)
        self._silent.pop(peer, None)

    def since(self, now: float) -> float | None:
        """Since when silence counts; None: it does not at present."""
        self._review(now)
        return self._since

    def resumed(self, now: float) -> None:
        """This leader has decided nothing for a while, and may not have heard others either: silence counts anew."""
        self._review(now)
        if self._since is not None:
            self._since = now

    def is_cut_off(self, now: float) -> bool:
        """Whether this leader has heard others, and hardly anybody any more, or expects to hear some and does not:
        another one may do better."""
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
    """Move what is as old as ``limit`` or older; ``times`` are in order."""
    while times:
        peer, at = next(iter(times.items()))
        if at > limit:
            return
        to[peer] = times.pop(peer)
