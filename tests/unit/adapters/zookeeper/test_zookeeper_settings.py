"""What is read from the configuration about ZooKeeper, and what its nodes hold."""

from __future__ import annotations

import pytest

from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.zookeeper.layout import (
    KeyNode,
    decode_node,
    encode_node,
    zookeeper_layout,
)
from emberkeep.adapters.zookeeper.session import session_settings
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import JobId

QUORUM = {"high-availability.zookeeper.quorum": "one:2181,two:2181"}


def configured(**texts: str) -> Configuration:
    keys = {f"high-availability.{name.replace('__', '.').replace('_', '-')}": text for name, text in texts.items()}
    return Configuration().with_texts({**QUORUM, **keys}, "test")


def test_settings_are_those_configured() -> None:
    settings = session_settings(
        configured(
            zookeeper__client__session_timeout="7s",
            zookeeper__client__authorization="digest:a:b",
            zookeeper__client__acl="creator",
        )
    )
    assert (settings.hosts, settings.session_timeout) == ("one:2181,two:2181", 7.0)
    assert (settings.authorization, settings.creator_only) == ("digest:a:b", True)


def test_a_quorum_must_be_named() -> None:
    with pytest.raises(InvalidInput, match="no server"):
        session_settings(Configuration())


def test_own_nodes_need_a_name() -> None:
    with pytest.raises(InvalidInput, match="creator"):
        session_settings(configured(zookeeper__client__acl="creator"))


@pytest.mark.req("HA-3")
@pytest.mark.parametrize("root", ["/flink", "flink/", "/flink/"])
def test_nodes_lie_below_root_and_cluster(root: str) -> None:
    layout = zookeeper_layout(configured(zookeeper__path__root=root, cluster_id="c1"))
    assert layout.job("ab") == "/flink/c1/currentJobs/ab"
    assert layout.epoch == "/flink/c1/epoch"


@pytest.mark.parametrize("name", ["", "/", "a/b", "..", "zookeeper"])
def test_a_cluster_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InvalidInput, match="not a valid name"):
        zookeeper_layout(configured(cluster_id=name))


def test_keys_of_clients_become_safe_node_names() -> None:
    layout = zookeeper_layout(configured())
    names = {layout.key(key).rpartition("/")[2] for key in ("a", "a/../b", "ä\0", "x" * 10_000)}
    assert len(names) == 4
    assert all(len(name) == 64 and name.isalnum() for name in names)


@pytest.mark.req("HA-10")
def test_damaged_foreign_and_unknown_nodes_are_refused_with_their_place() -> None:
    data = encode_node(StoredAttempt(attempt=3))
    assert decode_node(data, StoredAttempt, where="/here") == StoredAttempt(attempt=3)
    torn = (b"", data[:-1], data.replace(b"3}", b"4}"), data.replace(b"attempt 1", b"attempt 9"))
    for damaged in (*torn, encode_node(KeyNode(job_id=JobId("a" * 32), key="k"))):
        with pytest.raises(Fatal, match="/here"):
            decode_node(damaged, StoredAttempt, where="/here")
