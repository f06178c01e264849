"""Options of the state that task managers keep on their own disks."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import PORT, boolean, size, text
from emberkeep.base.configuration.values import Option, define

LOCAL_RECOVERY = define(
    Option(
        "state.backend.local-recovery",
        False,
        boolean,
        "boolean",
        "Whether checkpoints of streaming jobs go through the task managers' state gateways, which keep a "
        "copy of each state file on the node's disk in addition to the durable one.",
    )
)
LOCAL_STATE_DIRECTORY = define(
    Option(
        "taskmanager.state.local.root-dir",
        "",
        text,
        "path",
        "Directory for local state. Each task manager creates a directory of its own in it. Empty: `state` "
        "in its working directory.",
    )
)
LOCAL_STATE_QUOTA = define(
    Option(
        "state.backend.local-recovery.max-size",
        10 * 1024**3,
        size,
        "size",
        "Disk space for the local state of a task manager, or of all task managers that share a root "
        "directory. Above it, the least recently used copies are deleted; the durable files stay.",
    )
)
GATEWAY_PORT = define(
    Option(
        "state.gateway.port",
        0,
        PORT,
        "port",
        "Port of a task manager's state gateway. 0: any free port; a restarted task manager uses its "
        "previous port again.",
    )
)
