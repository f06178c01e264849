"""Where a driver's tunnels lead: to its Connect server, once the job that serves clients has started one."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.adapters.tunnels.driver_side import ServerPlace
from emberkeep.base.errors import Conflict
from emberkeep.daemons.driver.connect_place import connect_place
from emberkeep.spark.doors import served
from emberkeep.spark.doors.connect_server import ConnectServer


def spec(program: str) -> Any:
    return SimpleNamespace(graph=SimpleNamespace(entry_point=SimpleNamespace(name=program)))


def test_a_server_is_reached_once_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served._Served, "server", None)
    assert connect_place(spec(served.PROGRAM)) is None
    served.serve_clients(ConnectServer(None, 4711, "key"))
    assert connect_place(spec(served.PROGRAM)) == ServerPlace(4711, "key")


def test_the_server_of_a_pipeline_is_not_for_clients() -> None:
    with pytest.raises(Conflict, match="runs no Spark Connect server"):
        connect_place(spec("emberkeep.spark.doors.pipeline_run"))
