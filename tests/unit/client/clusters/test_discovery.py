from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.processes.process_identity import ProcessIdentity, own_identity
from emberkeep.client.clusters.cluster_file import (
    ClusterRecord,
    ClusterShape,
    DaemonRecord,
    read_cluster,
    write_cluster,
)
from emberkeep.client.clusters.discovery import find_cluster, require_cluster
from emberkeep.client.endpoint import Endpoint, parse_url
from emberkeep.client.errors import NoCluster

LOCAL, REMOTE = "local-token-" + "l" * 32, "remote-token-" + "r" * 32
DEAD = ProcessIdentity(pid=1, start_ticks=1, boot_id="an earlier boot")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(LOCAL + "\n")
    (tmp_path / "other-token").write_text(REMOTE)
    return tmp_path


def record(state: Path, identity: ProcessIdentity, url: str = "http://127.0.0.1:9999") -> ClusterRecord:
    return ClusterRecord(
        url=url,
        token_file=str(state / "token"),
        shape=ClusterShape(nodes=("127.0.0.1",), slots=2, memory="", definitions=()),
        job_manager=DaemonRecord(name="jobmanager", identity=identity, directory=str(state / "jobmanager")),
        task_managers=(),
    )


def find(
    state: Path, *definitions: str, url: str | None = None, file: Path | None = None, **environ: str
) -> Endpoint | None:
    environment = {"EMBERKEEP_STATE_DIR": str(state), **environ}
    configuration = load_configuration(config_file=file, environ=environment, definitions=definitions)
    return find_cluster(configuration, environment, url)


def test_the_nearest_source_wins(state: Path) -> None:
    write_cluster(state / "cluster.json", record(state, own_identity()))
    named = state / "named.yaml"
    named.write_text("rest.port: 5\n")
    (state / "config.yaml").write_text("rest.port: 6\n")
    url_variable = {"EMBERKEEP_URL": "https://127.0.0.1:3"}

    def port(*definitions: str, url: str | None = None, file: Path | None = None, **environ: str) -> str:
        endpoint = find(state, *definitions, url=url, file=file, **environ)
        assert endpoint is not None
        return endpoint.url.rpartition(":")[2]

    assert port("rest.port=2", url="127.0.0.1:1", file=named, **url_variable) == "1"
    assert port("rest.port=2", file=named, **url_variable) == "2"
    assert port(file=named, **url_variable) == "3"
    assert port(file=named, EMBERKEEP_REST__PORT="4") == "4"
    assert port(file=named) == "5"
    assert port() == "9999"  # config.yaml below the state directory describes the local cluster, it names none


@pytest.mark.parametrize("definition", ["rest.port=2", "rest.address=127.0.0.9"])
def test_either_half_of_the_address_names_a_cluster(state: Path, definition: str) -> None:
    endpoint = find(state, definition)
    assert endpoint is not None
    assert endpoint.source == "-D"


def test_nothing_named_and_nothing_running_is_no_cluster(state: Path) -> None:
    assert find(state) is None
    write_cluster(state / "cluster.json", record(state, DEAD))
    assert find(state) is None
    with pytest.raises(NoCluster, match="emberkeep cluster up"):
        require_cluster(load_configuration(environ={"EMBERKEEP_STATE_DIR": str(state)}), {"HOME": str(state)}, None)


def test_a_port_that_is_chosen_later_names_no_cluster(state: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rest\.port is 0"):
        find(state, "rest.port=0")


def test_the_local_token_stays_on_this_machine(state: Path) -> None:
    for url in ("https://127.0.0.1:1", "https://localhost:1", "https://[::1]:1"):
        endpoint = find(state, url=url)
        assert endpoint is not None
        assert endpoint.token == LOCAL
    remote = find(state, url="https://cluster.example:1")
    assert remote is not None
    assert remote.token == ""
    configured = find(state, f"security.token-file={state / 'other-token'}", url="https://cluster.example:1")
    assert configured is not None
    assert configured.token == REMOTE
    assert REMOTE not in repr(configured)


@pytest.mark.req("SEC-1")
def test_no_token_is_sent_without_encryption_unless_that_is_configured(state: Path) -> None:
    token = f"security.token-file={state / 'other-token'}"
    for url in ("http://127.0.0.1:1", "http://cluster.example:1"):
        with pytest.raises(InvalidInput, match="does not encrypt, but this cluster does") as caught:
            find(state, token, url=url)
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"use https{url.removeprefix('http')}; ")
    plain = find(state, token, "security.encryption=none", url="127.0.0.1:1")
    assert plain is not None
    assert (plain.url, plain.token) == ("http://127.0.0.1:1", REMOTE)
    with pytest.raises(InvalidInput, match="is another machine: the token is not sent there") as caught:
        find(state, token, "security.encryption=none", url="cluster.example:1")
    assert "security.insecure-network" in str(caught.value.hint)
    insecure = find(state, token, "security.encryption=none", "security.insecure-network=true", url="cluster.example:1")
    assert insecure is not None
    assert (insecure.url, insecure.token) == ("http://cluster.example:1", REMOTE)


@pytest.mark.req("SEC-1")
@pytest.mark.parametrize(("ca", "scheme"), [("", "http"), ("/state/tls/ca.pem", "https")])
@pytest.mark.parametrize("setting", ["none", "tls"])
def test_the_recorded_cluster_is_called_as_it_was_started(state: Path, ca: str, scheme: str, setting: str) -> None:
    own = msgspec.structs.replace(record(state, own_identity(), f"{scheme}://127.0.0.1:9999"), ca=ca)
    write_cluster(state / "cluster.json", own)
    for endpoint in (
        find(state, f"security.encryption={setting}"),
        find(state, f"security.encryption={setting}", url="127.0.0.1:9999"),
    ):
        assert endpoint is not None
        assert (endpoint.url, endpoint.token) == (f"{scheme}://127.0.0.1:9999", LOCAL)


def test_a_recorded_cluster_brings_its_own_token(state: Path) -> None:
    (state / "third").write_text("third-token-" + "x" * 32)
    own = record(state, own_identity())
    write_cluster(
        state / "cluster.json",
        ClusterRecord(
            url=own.url,
            token_file=str(state / "third"),
            shape=own.shape,
            job_manager=own.job_manager,
            task_managers=(),
        ),
    )
    for endpoint in (find(state), find(state, url=own.url)):
        assert endpoint is not None
        assert endpoint.token.startswith("third-token-")


def test_a_job_manager_of_the_cluster_is_found_by_the_address_that_it_gives(state: Path) -> None:
    first = record(state, own_identity(), "http://127.0.0.1:1")
    standby = DaemonRecord(name="jobmanager-2", identity=own_identity(), directory=str(state))
    cluster = msgspec.structs.replace(first, standbys=(standby,), standby_urls=("http://127.0.0.1:2",))
    assert cluster.url_of("127.0.0.1:1") == "http://127.0.0.1:1"
    assert cluster.url_of("127.0.0.1:2") == "http://127.0.0.1:2"
    assert cluster.url_of("elsewhere:2") == "http://127.0.0.1:1"


@pytest.mark.req("SEC-11")
def test_a_token_file_that_the_user_names_is_used_with_the_local_cluster_too(state: Path) -> None:
    """Else a command with somebody's token would run with the rights of the cluster's own."""
    write_cluster(state / "cluster.json", record(state, own_identity()))
    other = str(state / "other-token")
    named = state / "named.yaml"
    named.write_text(f"security.token-file: {other}\n")
    for endpoint in (
        find(state, f"security.token-file={other}"),
        find(state, EMBERKEEP_SECURITY__TOKEN_FILE=other),
        find(state, file=named),
    ):
        assert endpoint is not None
        assert (endpoint.url, endpoint.token) == ("http://127.0.0.1:9999", REMOTE)

    (state / "config.yaml").write_text(f"security.token-file: {other}\n")  # describes the local cluster's processes
    endpoint = find(state)
    assert endpoint is not None
    assert endpoint.token == LOCAL


def test_a_token_that_cannot_be_read_is_told(state: Path) -> None:
    with pytest.raises(Fatal, match=r"cannot read the token file .*nowhere: No such file"):
        find(state, f"security.token-file={state / 'nowhere'}", url="https://h:1")
    (state / "other-token").write_text("")
    with pytest.raises(Fatal, match="holds no token"):
        find(state, f"security.token-file={state / 'other-token'}", url="https://h:1")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8081", "http://127.0.0.1:8081"),
        ("http://host:1/", "http://host:1"),
        ("https://host/prefix/", "https://host/prefix"),
        ("[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses_are_read_in_several_forms(text: str, url: str) -> None:
    assert parse_url(text, "--url") == url


@pytest.mark.parametrize(
    "text", ["ftp://host", "http://", "http://host:port", "http://u:p@host", "http://h/?a=1", "http://[x"]
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(InvalidInput, match="--url"):
        parse_url(text, "--url")


def test_the_cluster_file_is_checked_when_read(state: Path) -> None:
    path = state / "cluster.json"
    assert read_cluster(path) is None
    written = record(state, own_identity())
    write_cluster(path, written)
    assert read_cluster(path) == written
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    for damaged in (data.replace(b"9999", b"9998"), data[:-20], b"", data.replace(b'"version":1', b'"version":2')):
        path.write_bytes(damaged)
        with pytest.raises(Fatal, match=r"cluster\.json.*(damaged|unknown).*then delete"):
            read_cluster(path)
