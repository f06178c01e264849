"""``python -m campaign.floors.confined LIMITS -- COMMAND…``: become a command that has few resources.

The limits are those of this process before it becomes the command, so nothing of the command runs outside them.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Set the limits of the command line, then become its command."""
    parser = argparse.ArgumentParser(prog="confined", description=__doc__)
    parser.add_argument("--descriptors", type=int, default=0, help="as `ulimit -n`; 0: unchanged")
    parser.add_argument("--group", type=Path, help="the directory of a memory cgroup to enter")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.group is not None:
        (options.group / "cgroup.procs").write_text(str(os.getpid()))
    if options.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.descriptors, options.descriptors))
    os.execv(options.command[0], options.command)


if __name__ == "__main__":
    main(sys.argv[1:])
