"""What is read from the configuration about ZooKeeper, and what its nodes hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.adapters.zookeeper import session
from emberkeep.adapters.zookeeper.access.encrypted_connections import EncryptedHandler
from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles, ZooKeeperLogin, session_settings
from emberkeep.adapters.zookeeper.layout import (
    KeyNode,
    decode_node,
    encode_node,
    zookeeper_layout,
)
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import JobId

QUORUM = {"high-availability.zookeeper.quorum": "127.0.0.1:2181,127.0.0.2:2181"}
TOKEN = "token"


def configured(**texts: str) -> Configuration:
    keys = {f"high-availability.{name.replace('__', '.').replace('_', '-')}": text for name, text in texts.items()}
    return Configuration().with_texts({**QUORUM, **keys}, "test")


def test_settings_are_those_configured() -> None:
    settings = session_settings(
        configured(
            zookeeper__client__session_timeout="7s",
            zookeeper__client__authorization="digest:a:b",
            zookeeper__client__acl="creator",
        ),
        TOKEN,
    )
    assert (settings.hosts, settings.session_timeout) == ("127.0.0.1:2181,127.0.0.2:2181", 7.0)
    assert (settings.login, settings.creator_only) == (ZooKeeperLogin("digest:a:b"), True)


def test_a_quorum_must_be_named() -> None:
    with pytest.raises(InvalidInput, match="no server"):
        session_settings(Configuration(), TOKEN)


def test_own_nodes_need_a_name() -> None:
    with pytest.raises(InvalidInput, match="creator"):
        session_settings(configured(zookeeper__client__acl="creator"), TOKEN)


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


LOGIN = {"zookeeper__client__authorization": "digest:a:b"}


@pytest.mark.req("SEC-3")
@pytest.mark.parametrize(
    ("texts", "creator_only"),
    [
        ({}, False),
        (LOGIN, True),
        ({**LOGIN, "zookeeper__client__acl": "open"}, False),
        ({**LOGIN, "zookeeper__insecure_records": "sign"}, True),
        ({**LOGIN, "zookeeper__insecure_records": "keep-unsigned"}, False),
    ],
)
def test_nodes_are_for_this_cluster_only_where_it_has_credentials(texts: dict[str, str], creator_only: bool) -> None:
    assert session_settings(configured(**texts), TOKEN).creator_only is creator_only


@pytest.mark.req("SEC-3")
@pytest.mark.parametrize("quorum", ["zk.example:2181", "127.0.0.1:2181,10.0.0.7:2181/chroot", "[2001:db8::1]:2181"])
def test_other_machines_are_not_used_without_protection(quorum: str) -> None:
    plain = configured().with_texts({"high-availability.zookeeper.quorum": quorum}, "test")
    with pytest.raises(InvalidInput, match="is another machine") as caught:
        session_settings(plain, TOKEN)
    assert "insecure-access" in str(caught.value.hint)
    for key, text in (
        ("insecure-access", "true"),
        ("client.ssl.enabled", "true"),
        ("client.authorization", "digest:a:b"),
    ):
        session_settings(plain.with_texts({f"high-availability.zookeeper.{key}": text}, "test"), TOKEN)


@pytest.mark.req("SEC-3")
@pytest.mark.parametrize("quorum", ["127.0.0.1:2181", "localhost", "[::1]:2181,127.0.0.2:1/chroot"])
def test_this_machine_is_used_as_it_is(quorum: str) -> None:
    plain = configured().with_texts({"high-availability.zookeeper.quorum": quorum}, "test")
    assert session_settings(plain, TOKEN).hosts == quorum


@pytest.mark.req("SEC-3")
def test_credentials_are_read_from_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_text("digest:a:b\n")
    path.chmod(0o600)
    configuration = configured(zookeeper__client__authorization_file=str(path))
    assert session_settings(configuration, TOKEN).login == ZooKeeperLogin("digest:a:b")
    path.chmod(0o640)
    with pytest.raises(Fatal, match="can be read or written by others"):
        session_settings(configuration, TOKEN)
    path.unlink()
    path.symlink_to("/dev/null")
    with pytest.raises(Fatal, match=r"authorization-file: cannot read .*/login"):
        session_settings(configuration, TOKEN)


@pytest.mark.req("SEC-3")
def test_tls_checks_the_servers_certificate_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / name for name in ("ca-file", "certificate-file", "key-file")}
    for path in files.values():
        path.touch(mode=0o600)
    texts = {f"high-availability.zookeeper.client.ssl.{name}": str(path) for name, path in files.items()}
    with pytest.raises(InvalidInput, match="not encrypted"):
        session_settings(configured().with_texts(texts, "test"), TOKEN)
    enabled = configured(zookeeper__client__ssl__enabled="true").with_texts(texts, "test")
    given: dict[str, object] = {}
    monkeypatch.setattr(session, "KazooClient", lambda **options: given.update(options))
    ZooKeeperSession(session_settings(enabled, TOKEN))
    handler = given["handler"]
    assert isinstance(handler, EncryptedHandler)
    assert handler.encryption == EncryptionFiles(*(str(path) for path in files.values()))
    files["key-file"].chmod(0o644)
    with pytest.raises(Fatal, match="key-file can be read or written by others"):
        session_settings(enabled, TOKEN)
    files["key-file"].unlink()
    with pytest.raises(InvalidInput, match="key-file: there is no file"):
        session_settings(enabled, TOKEN)


@pytest.mark.req("SEC-3")
def test_sasl_takes_the_credentials_and_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = configured(**LOGIN, zookeeper__client__sasl="DIGEST-MD5")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(InvalidInput, match="pure-sasl is not installed"):
        session_settings(configuration, TOKEN)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    given: dict[str, object] = {}
    monkeypatch.setattr(session, "KazooClient", lambda **options: given.update(options))
    ZooKeeperSession(session_settings(configuration, TOKEN))
    assert given["auth_data"] is None
    assert given["sasl_options"] == {
        "mechanism": "DIGEST-MD5",
        "service": "zookeeper",
        "username": "a",
        "password": "b",
    }
    with pytest.raises(InvalidInput, match="no credentials"):
        session_settings(configured(zookeeper__client__sasl="DIGEST-MD5"), TOKEN)
