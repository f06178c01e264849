"""Binding a port, serving it, and saying why that cannot be."""

from __future__ import annotations

import socket

import pytest
from aiohttp import ClientSession, web

from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.errors import Fatal

pytestmark = pytest.mark.anyio


def is_refused(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


async def test_port_zero_is_any_free_port_and_the_address_says_which() -> None:
    port = bind_port("127.0.0.1", 0)
    assert port.address == f"127.0.0.1:{port.port}"
    assert is_refused(port.address)
    server = await serve_http(web.Application(), port)
    async with ClientSession() as session, session.get(f"http://{server.address}/") as answer:
        assert answer.status == 404
    await server.close()
    await server.close()
    port.close()
    assert is_refused(port.address)


async def test_a_port_announces_the_host_at_which_others_reach_it() -> None:
    port = bind_port("0.0.0.0", 0, announced="fd00::7")
    assert port.address == f"[fd00::7]:{port.port}"
    assert not port.socket.getsockname()[0].startswith("fd00")
    port.close()


async def test_a_port_announces_the_number_at_which_others_reach_it() -> None:
    port = bind_port("127.0.0.1", 0, announced="router.example", announced_port=443)
    assert port.address == "router.example:443"
    assert port.port == 443
    assert port.bound == port.socket.getsockname()[1] != 443
    server = await serve_http(web.Application(), port)
    assert server.address == port.address
    assert not is_refused(f"127.0.0.1:{port.bound}")
    await server.close()


async def test_ports_that_are_bound_and_not_yet_served_are_all_different() -> None:
    ports = [bind_port("127.0.0.1", 0) for _ in range(50)]
    assert len({port.port for port in ports}) == 50
    for port in ports:
        port.close()


async def test_a_port_in_use_is_named_with_the_setting_to_change() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(Fatal, match=rf"port {number} on 127\.0\.0\.1 is in use.*rest\.port"):
            bind_port("127.0.0.1", number)
        with pytest.raises(Fatal, match=r"taskmanager\.rpc\.port"):
            bind_port("127.0.0.1", number, port_option="taskmanager.rpc.port")


async def test_of_two_that_bind_a_port_at_once_one_serves_and_one_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    first, second = bind_port("127.0.0.1", number), bind_port("127.0.0.1", number)
    server = await serve_http(web.Application(), first)
    with pytest.raises(Fatal, match="is in use"):
        await serve_http(web.Application(), second)
    second.close()
    await server.close()


async def test_a_port_can_be_served_again_at_once() -> None:
    server = await serve_http(web.Application(), bind_port("127.0.0.1", 0))
    async with ClientSession() as session, session.get(f"http://{server.address}/") as answer:
        await answer.read()
        await server.close()
    again = await serve_http(web.Application(), bind_port("127.0.0.1", int(server.address.rpartition(":")[2])))
    await again.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "host..invalid"])
async def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(Fatal, match=host.replace(".", r"\.")):
        bind_port(host, 0)
