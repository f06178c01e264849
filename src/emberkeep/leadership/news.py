"""Merge what a process knows about the leader with what another process reports. Pure."""

from __future__ import annotations

from emberkeep.leadership.model import LeaderNews

MOST_JOB_MANAGERS = 16  # addresses remembered


def joined(known: LeaderNews, heard: LeaderNews) -> LeaderNews:
    """Merge ``heard`` into ``known``.

    Reports may arrive late, so the leader with the higher epoch is right, whichever process reports it. The leader's
    address comes first, then the most recently reported ones; only the first MOST_JOB_MANAGERS addresses are kept.
    """
    leader = known.leader
    if heard.leader is not None and (leader is None or heard.leader.epoch > leader.epoch):
        leader = heard.leader
    leading = () if leader is None else (leader.address,)
    heard_leader = () if heard.leader is None else (heard.leader.address,)
    addresses = dict.fromkeys(filter(None, (*leading, *heard_leader, *heard.job_managers, *known.job_managers)))
    return LeaderNews(leader, tuple(addresses)[:MOST_JOB_MANAGERS])
