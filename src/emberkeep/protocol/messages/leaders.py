"""Messages by which a process that gets no reply from its leader finds the leader."""

from __future__ import annotations

from emberkeep.protocol.messages.root import Message


class AskLeader(Message, frozen=True, kw_only=True):
    """Ask any JobManager, TaskManager or JobMaster who the leader is.

    Sent by a process whose leader does not answer. In this way, a process that cannot reach ZooKeeper, or has no
    session there, learns about a new leader. ``job_id`` and ``attempt``: those of the JobMaster that is asked; "" and 0
    if another process is asked.
    """

    job_id: str = ""
    attempt: int = 0


class LeaderTold(Message, frozen=True, kw_only=True):
    """What the process knows about the leader.

    ``epoch`` 0: no leader is known. ``job_managers``: known addresses of JobManagers, most recently reported first.
    """

    epoch: int = 0
    address: str = ""
    job_managers: tuple[str, ...] = ()
