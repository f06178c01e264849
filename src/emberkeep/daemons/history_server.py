"""Becomes Spark's History Server, as a process that ends with the JobManager that has started it.

Arguments: the pid of the JobManager, and the server's command.
"""

from __future__ import annotations

import os
import sys

from emberkeep.base.processes.background import end_with_parent


def main() -> None:
    parent, *command = sys.argv[1:]
    end_with_parent(int(parent))  # holds for the program that replaces this one, too
    os.execv(command[0], command)  # noqa: S606 - the command of this installation's own Java


if __name__ == "__main__":
    main()
