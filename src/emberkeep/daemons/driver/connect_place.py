"""Where the Spark Connect server of this driver is, for tunnels to it."""

from __future__ import annotations

from emberkeep.adapters.tunnels.driver_side import ServerPlace
from emberkeep.base.errors import Conflict
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.spark.doors.served import PROGRAM, served


def connect_place(spec: DriverSpec) -> ServerPlace | None:
    """Return the place; None while the server starts. Raises Conflict if the job runs none for clients."""
    if spec.graph.entry_point.name != PROGRAM:
        raise Conflict("the job runs no Spark Connect server", hint="`emberkeep connect up` starts one")
    server = served()
    return None if server is None else ServerPlace(server.port, server.token)
