"""What a task manager's pod runs: ``python -m`` with the name of this module, and a task manager's arguments.

Kubernetes sends SIGTERM when the pod is deleted, such as by ``kubectl drain``: the work moves to other task managers,
then the pod ends. What has not moved within the grace period is killed.
"""

from __future__ import annotations

import signal
import sys

from emberkeep.daemons.supervision.supervised_agent import AGENT, Supervisor


def main(arguments: list[str]) -> int:
    """Run the task manager until its pod is over. Return the exit code of its container."""
    return Supervisor([*AGENT, *arguments], {signal.SIGTERM: signal.SIGUSR1}).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
