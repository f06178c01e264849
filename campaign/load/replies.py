"""What replies show by themselves: how long they took, during takeovers and outside, and which must not have come.

A reply's time is not what a client waits: it sends a request again after a refusal, a redirection or a lost reply. See
``until_accepted``.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from campaign.processes.calls import Answered
from campaign.processes.strikes import Strike

KINDS: tuple[tuple[str, str, str], ...] = (  # of replies: name, method, pattern of the path
    ("submit", "POST", r"/v1/jobs"),
    ("announce BLOBs", "POST", r"/v1/jobs/\w+/blobs"),
    ("upload", "PUT", r"/v1/jobs/\w+/blobs/[^/]+"),
    ("cancel", "PATCH", r"/v1/jobs/\w+"),
    ("read a job", "GET", r"/v1/jobs/\w{32}"),
    ("list jobs", "GET", r"/v1/jobs/overview"),
    ("block", "PUT", r"/v1/blocklist/.+"),
    ("unblock", "DELETE", r"/v1/blocklist/.+"),
    ("list the blocklist", "GET", r"/v1/blocklist"),
)
OTHER = "other"
_REDIRECTIONS = (307, 308)
_ALWAYS = 503  # "nothing has changed, try again": any resource of the leader may reply so
Documented = Mapping[str, Mapping[str, frozenset[int]]]  # statuses by path, as in the OpenAPI document, and method


class Window(msgspec.Struct, frozen=True):
    """A takeover: from the loss of the leader until a leader has answered a request that was sent afterwards."""

    begin: float
    end: float


class Wait(msgspec.Struct, frozen=True, array_like=True):
    """A client has wanted a new job from ``begun`` on, and the job was accepted at ``accepted``."""

    begun: float
    accepted: float


def kind_of(reply: Answered) -> str:
    """Return which kind of request this answers."""
    path = reply.path.partition("?")[0]
    for name, method, pattern in KINDS:
        if method == reply.method and re.fullmatch(pattern, path):
            return name
    return OTHER


def windows(strikes: Iterable[Strike], replies: Iterable[Answered]) -> list[Window]:
    """Return the takeovers, in order; those that overlap are one.

    One that no reply has ended lasts until the end.
    """
    good = sorted((each.sent, each.returned) for each in replies if each.status < 300 and each.is_vouched_for)
    first = [math.inf] * (len(good) + 1)  # the earliest return of all that were sent from here on
    for index in range(len(good) - 1, -1, -1):
        first[index] = min(first[index + 1], good[index][1])
    found: list[Window] = []
    for strike in sorted(strikes, key=lambda each: each.at):
        end = first[bisect_left(good, (strike.at, 0.0))]
        if found and strike.at <= found[-1].end:
            found[-1] = Window(found[-1].begin, max(end, found[-1].end))
        else:
            found.append(Window(strike.at, end))
    return found


def latencies(replies: Iterable[Answered], takeovers: Sequence[Window]) -> dict[str, Counter[int]]:
    """Return how many replies took so many milliseconds, by "<kind>|during" and "<kind>|outside" of takeovers.

    A reply is during a takeover if its request waited in any part of it. Only what a client may use counts: no refusal
    with 503, no redirection to the leader, and nothing that the leader does not vouch for.
    """
    found: dict[str, Counter[int]] = {}
    for reply in replies:
        if reply.status >= 500 or reply.status in _REDIRECTIONS or not reply.is_vouched_for:
            continue
        key = f"{kind_of(reply)}|{_when(reply.sent, reply.returned, takeovers)}"
        found.setdefault(key, Counter())[_milliseconds(reply.sent, reply.returned)] += 1
    return found


def until_accepted(waits: Iterable[Wait], takeovers: Sequence[Window]) -> dict[str, Counter[int]]:
    """Return how many jobs have waited so many milliseconds, "during" takeovers and "outside".

    From the first request about the job until the reply that accepts it, with all that was refused, redirected or lost
    in between, and the client's pauses.
    """
    found: dict[str, Counter[int]] = {}
    for wait in waits:
        when = _when(wait.begun, wait.accepted, takeovers)
        found.setdefault(when, Counter())[_milliseconds(wait.begun, wait.accepted)] += 1
    return found


def _when(begin: float, end: float, takeovers: Sequence[Window]) -> str:
    index = bisect_left(takeovers, end, key=lambda window: window.begin) - 1
    return "during" if index >= 0 and takeovers[index].end >= begin else "outside"


def _milliseconds(begin: float, end: float) -> int:
    return max(1, round((end - begin) * 1e3))


def documented(paths: Mapping[str, Mapping[str, Any]]) -> Documented:
    """Return the statuses that the ``paths`` of an OpenAPI document name.

    Except 500: every resource names it, and it says that the server has met a bug.
    """
    return {
        path: {
            method.upper(): frozenset(int(status) for status in operation["responses"] if status.isdigit()) - {500}
            for method, operation in operations.items()
            if isinstance(operation, dict)
        }
        for path, operations in paths.items()
    }


def undocumented(replies: Iterable[Answered], known: Documented) -> list[str]:
    """Return the replies with a status from 500 on that the documentation does not name for their resource."""
    patterns = [
        (re.compile("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path)))), methods)
        for path, methods in known.items()
    ]
    found = []
    for reply in replies:
        if reply.status < 500 or reply.status == _ALWAYS:
            continue
        path = reply.path.partition("?")[0]
        allowed = {
            status
            for pattern, methods in patterns
            if pattern.fullmatch(path)
            for status in methods.get(reply.method, frozenset())
        }
        if reply.status not in allowed:
            found.append(f"{reply.method} {reply.path[:200]} was answered with {reply.status}")
    return found


def quantile(counts: Mapping[int, int], share: float) -> int:
    """Return the number of milliseconds that this share of the replies took at most. There is one at least."""
    left = math.ceil(sum(counts.values()) * share)
    for milliseconds, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return milliseconds
    return max(counts)
