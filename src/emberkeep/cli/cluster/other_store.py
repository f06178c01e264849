"""List task managers that work for another job store, and say what an operator can do about them."""

from __future__ import annotations

from collections.abc import Sequence

from emberkeep.cli.messages import print_line
from emberkeep.cli.tables import print_table
from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore

_WHAT_TO_DO = """\
Their drivers and executors keep running; this JobManager places nothing new there. If that job store still exists,
start the JobManager with it again: the jobs continue. If it is lost, end what runs there: on each of these nodes
`kill PID`, then start once, with the usual options, `emberkeep taskmanager -D taskmanager.adopt-leader=true`.
Where an epoch is shown, the job store was restored from an older copy: raise its epoch, see docs/storage.md."""


def print_of_another_store(task_managers: Sequence[TaskManagerOfAnotherStore]) -> None:
    """Print task managers of another job store and what to do about them; print nothing if there are none."""
    if not task_managers:
        return
    print_line("\nTask managers of another job store")
    print_table(
        ("ID", "ADDRESS", "NODE", "PID", "JOB STORE"),
        [(other.id, other.path, other.node_id, str(other.pid), other.store) for other in task_managers],
    )
    print_line(_WHAT_TO_DO)
