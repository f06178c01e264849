"""Run a Spark Connect server until the job is cancelled. `emberkeep connect up` submits this as the program of its job.

Clients reach the server through the cluster (`adapters.tunnels`).
"""

from __future__ import annotations

import sys
import time

from emberkeep.base.errors import EmberkeepError
from emberkeep.spark.doors.connect_server import is_serving, start_server
from emberkeep.spark.doors.served import serve_clients

_LOOK_SECONDS = 2.0  # between two looks whether the server still runs


def main() -> None:
    """Start the server and watch it. Raises SystemExit if it cannot start, or has stopped."""
    try:
        server = start_server({})
    except EmberkeepError as error:
        sys.exit(f"emberkeep: {error}")
    serve_clients(server)
    print("the Spark Connect server accepts clients", flush=True)  # noqa: T201 - the job's own output
    while is_serving(server):
        time.sleep(_LOOK_SECONDS)
    sys.exit("emberkeep: the Spark Connect server has stopped")


if __name__ == "__main__":
    main()
