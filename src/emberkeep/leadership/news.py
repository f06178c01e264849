"""What is known of who leads, when more is heard. Pure."""

from __future__ import annotations

from emberkeep.leadership.model import LeaderNews

MOST_JOB_MANAGERS = 16  # addresses that are remembered


def joined(known: LeaderNews, heard: LeaderNews) -> LeaderNews:
    """Of two leaders the one with the higher epoch is right, whoever tells of it: news may come late.

    The addresses heard of last come first, after the leader's; the oldest are forgotten.
    """
    leader = known.leader
    if heard.leader is not None and (leader is None or heard.leader.epoch > leader.epoch):
        leader = heard.leader
    leading = () if leader is None else (leader.address,)
    heard_leader = () if heard.leader is None else (heard.leader.address,)
    addresses = dict.fromkeys(filter(None, (*leading, *heard_leader, *heard.job_managers, *known.job_managers)))
    return LeaderNews(leader, tuple(addresses)[:MOST_JOB_MANAGERS])
