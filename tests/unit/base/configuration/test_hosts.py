"""Host names and addresses, as users write them and as they are written before a port."""

from __future__ import annotations

import pytest

from emberkeep.base.configuration.hosts import host, hosts, join_host_port
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_BIND_HOST, TASK_MANAGER_HOST
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.daemons.jobmanager.process_settings import names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Node-1.Example", "node-1.example"),
        (" 10.0.0.5 ", "10.0.0.5"),
        ("[fd00::5]", "fd00::5"),
        ("FD00:0:0::0005", "fd00::5"),
        ("::", "::"),
        ("", ""),
    ],
)
def test_a_host_is_written_in_one_way(written: str, meant: str) -> None:
    assert host(written) == meant


@pytest.mark.parametrize("written", ["node-1:8081", "http://node-1", "[node-1]", "node 1", "fd00::5:x"])
def test_what_is_no_host_is_refused_with_its_option(written: str) -> None:
    with pytest.raises(InvalidInput, match=r"rest\.address: .*without a port"):
        Configuration().with_texts({"rest.address": written}, "-D")


def test_a_port_follows_an_address_in_brackets() -> None:
    assert join_host_port("fd00::5", 8081) == "[fd00::5]:8081"
    assert join_host_port("node-1", 8081) == "node-1:8081"


def test_further_hosts_are_compared_as_browsers_send_them() -> None:
    assert hosts("Console.Example, ,[FD00::5]") == "console.example,fd00::5"
    texts = {"rest.address": "JM-1.Example", "security.allowed-hosts": "Console.Example"}
    configuration = Configuration().with_texts(texts, "-D")
    assert set(names(configuration)) == {"jm-1.example", "127.0.0.1", "console.example"}


def test_a_task_manager_binds_its_host_unless_told_otherwise() -> None:
    given = Configuration().with_texts({"taskmanager.host": "203.0.113.7", "taskmanager.bind-host": "::"}, "-D")
    assert given[TASK_MANAGER_HOST] == "203.0.113.7"
    assert given[TASK_MANAGER_BIND_HOST] == "::"
