"""What a task manager's pod runs: ``python -m`` with the name of this module, and a task manager's arguments.

Kubernetes sends SIGTERM when the pod is deleted, such as by ``kubectl drain``: the work moves to other task managers,
then the pod ends. What has not moved within the grace period is killed.
"""

from __future__ import annotations

import signal
import sys

_SIGNALS = {signal.SIGTERM: signal.SIGUSR1}


def main(arguments: list[str]) -> int:
    """Run the task manager until its pod is over. Return the exit code of its container."""
    from emberkeep.daemons.supervision.supervised_agent import AGENT, Supervisor

    return Supervisor([*AGENT, *arguments], _SIGNALS).run()


if __name__ == "__main__":
    # The kernel drops signals to the first process of a container that has no handler for them, and Kubernetes sends
    # this one once. While what is needed is imported, it waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    sys.exit(main(sys.argv[1:]))
