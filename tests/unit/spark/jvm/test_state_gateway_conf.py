"""What leads Spark to the state gateway, beside what the job has set itself."""

from __future__ import annotations

import pytest

from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, KIND, decode, encode
from emberkeep.spark.errors import InvalidSparkConfiguration
from emberkeep.spark.jvm.state_gateway_conf import (
    PLACEMENT_DEFAULTS,
    HadoopSite,
    gateway_settings,
    placement_settings,
    process_environment,
)


def test_each_process_finds_its_own_gateway_by_its_environment() -> None:
    settings = gateway_settings({}, HadoopSite(), encrypts=True)
    assert settings["spark.hadoop.dfs.nameservices"] == "localhost"
    assert settings["spark.hadoop.dfs.ha.namenodes.localhost"] == "tm"
    address = settings["spark.hadoop.dfs.namenode.https-address.localhost.tm"]
    assert address == "${env.EMBERKEEP_STATE_GATEWAY:-127.0.0.1:9}"
    # It selects ten retries without any pause: a gateway that restarts would cost the query.
    assert not any("failover.proxy.provider" in key for key in settings)


@pytest.mark.parametrize("known", ["east,west", " east , west ,"])
def test_the_jobs_own_nameservices_stay(known: str) -> None:
    assert (
        gateway_settings({}, HadoopSite(known), encrypts=True)["spark.hadoop.dfs.nameservices"] == "east,west,localhost"
    )


@pytest.mark.parametrize(
    ("present", "known"),
    [
        ({}, "localhost"),
        ({}, "east,localhost"),
        ({"spark.hadoop.dfs.ha.namenodes.localhost": "n1,n2"}, ""),
        ({"spark.hadoop.dfs.client.failover.proxy.provider.localhost": "x"}, ""),
    ],
)
def test_a_nameservice_of_the_gateways_name_is_refused(present: dict[str, str], known: str) -> None:
    with pytest.raises(InvalidSparkConfiguration, match="recovery=false"):
        gateway_settings(present, HadoopSite(known), encrypts=True)


def test_a_copy_of_an_earlier_contexts_configuration_is_fine() -> None:
    settings = gateway_settings({}, HadoopSite("east"), encrypts=True)
    assert gateway_settings(settings, HadoopSite("east"), encrypts=True) == settings
    assert placement_settings(PLACEMENT_DEFAULTS) == ({}, ())


@pytest.mark.req("SEC-9")
def test_clients_verify_the_gateway_with_the_truststore_of_their_process() -> None:
    settings = gateway_settings({}, HadoopSite(), encrypts=True)
    assert settings["spark.hadoop.ssl.client.truststore.location"] == "${env.EMBERKEEP_STATE_TRUST:-}"
    plain = gateway_settings({}, HadoopSite(), encrypts=False)
    assert not any("truststore" in key for key in plain)
    assert "spark.hadoop.dfs.namenode.http-address.localhost.tm" in plain


@pytest.mark.parametrize(
    ("present", "site", "where"),
    [
        ({"spark.hadoop.ssl.client.truststore.location": "/etc/trust.jks"}, HadoopSite(), "truststore.location"),
        ({"spark.hadoop.ssl.client.truststore.type": "JKS"}, HadoopSite(), "truststore.type"),
        ({"spark.hadoop.hadoop.ssl.client.conf": "mine.xml"}, HadoopSite(), "hadoop.ssl.client.conf"),
        ({}, HadoopSite(tls="file:/etc/hadoop/ssl-client.xml"), "file:/etc/hadoop/ssl-client.xml"),
    ],
)
def test_a_job_with_its_own_tls_for_hadoop_is_told(present: dict[str, str], site: HadoopSite, where: str) -> None:
    with pytest.raises(InvalidSparkConfiguration, match=f"{where} configures the TLS") as caught:
        gateway_settings(present, site, encrypts=True)
    assert "local-recovery=false" in str(caught.value.hint)
    assert gateway_settings(present, site, encrypts=False)


@pytest.mark.req("LOC-11")
def test_tasks_wait_for_the_node_that_holds_their_state() -> None:
    assert placement_settings({}) == (PLACEMENT_DEFAULTS, ())
    same = {"spark.locality.wait.node": "15s"}
    values, warnings = placement_settings(same)
    assert "spark.locality.wait.node" not in values
    assert not warnings


@pytest.mark.req("LOC-11")
def test_the_jobs_own_waits_stay_with_a_warning() -> None:
    values, warnings = placement_settings({"spark.locality.wait": "1s"})
    assert values == {"spark.shuffle.reduceLocality.enabled": "false"}
    assert len(warnings) == 2
    assert "spark.locality.wait=1s is kept" in warnings[0]

    values, warnings = placement_settings({"spark.locality.wait": "1s", "spark.locality.wait.node": "9s"})
    assert values == {"spark.shuffle.reduceLocality.enabled": "false"}
    assert any("spark.locality.wait.node=9s is kept" in warning for warning in warnings)

    values, warnings = placement_settings({"spark.shuffle.reduceLocality.enabled": "true"})
    assert set(values) == {"spark.locality.wait.process", "spark.locality.wait.node"}
    assert len(warnings) == 1


def test_a_jvm_gets_the_credential_as_a_token_beside_its_own_tokens() -> None:
    given = {"EMBERKEEP_STATE_CREDENTIAL": "c", "EMBERKEEP_STATE_GATEWAY": "127.0.0.2:1", "HADOOP_TOKEN": "mine"}
    environment = process_environment(given)
    assert environment["EMBERKEEP_STATE_GATEWAY"] == "127.0.0.2:1"
    assert "EMBERKEEP_STATE_CREDENTIAL" not in environment
    first, *added = environment["HADOOP_TOKEN"].split(",")
    assert first == "mine"
    assert {decode(token) for token in added} == {"c"}
    assert added == [encode("c", KIND, f"{host}:9870") for host in ("127.0.0.1", "localhost")]
    *_, last = process_environment(given | {"EMBERKEEP_STATE_TRUST": "/trust.p12"})["HADOOP_TOKEN"].split(",")
    assert last == encode("c", ENCRYPTED_KIND, "localhost:9871")
    assert process_environment({"PATH": "/bin"}) == {"PATH": "/bin"}
