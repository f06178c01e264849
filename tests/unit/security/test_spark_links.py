"""Spark's processes authenticate each other and encrypt links and files, unless the user's settings say otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.daemons.driver import settings as driver_settings
from emberkeep.daemons.driver.settings import JobSettings
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.configuration import application, executor_java_options, master_configuration
from emberkeep.spark.jvm.driver_command import SubmitArguments, launch_configuration, ui_address
from emberkeep.spark.model import DriverSettings
from tests.unit.formats.golden_samples import DRIVER_SPEC

pytestmark = pytest.mark.req("SEC-10")

LINKS, FILES = "spark.network.crypto.enabled", "spark.io.encryption.enabled"
OFF = {LINKS: "false", FILES: "false"}
TLS = {
    "spark.ssl.rpc.enabled": "true",
    "spark.ssl.rpc.keyStore": "/keys/store.jks",
    "spark.ssl.rpc.keyStorePassword": "hush-1",
    "spark.ssl.keyPassword": "hush-2",
    "spark.ssl.trustStorePassword": "hush-3",
    "spark.ssl.rpc.trustStorePassword": "hush-4",
}
SETTINGS = DriverSettings(
    host="10.0.0.5",
    spark_conf={},
    scratch_dir=Path("/scratch"),
    checkpoint_root="file:///checkpoints",
    secret="hush",
    java=JavaRuntime(None, Path("/java"), 17),
    app_name="an app",
    driver_memory_mb=900,
)


def launched(
    settings: DriverSettings = SETTINGS,
    arguments: dict[str, str] | None = None,
    code: dict[str, str] | None = None,
    file: dict[str, str] | None = None,
) -> dict[str, str]:
    return launch_configuration(code or {}, SubmitArguments(arguments or {}, ()), settings, file or {})


def test_links_and_files_are_encrypted_by_default() -> None:
    conf = launched()
    assert (conf[LINKS], conf[FILES]) == ("true", "true")
    assert conf["spark.network.crypto.saslFallback"] == "false", "no link without encryption after a failed handshake"
    assert conf["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert "-Dspark.network.crypto.enabled=true" in executor_java_options(conf)
    assert "-Dspark.io.encryption.enabled=true" in executor_java_options(conf), "its task manager encrypts for Python"


def test_settings_of_the_user_win() -> None:
    by_conf = dataclasses.replace(SETTINGS, spark_conf=OFF)
    for conf in (launched(by_conf), launched(arguments=OFF), launched(code=OFF)):
        assert (conf[LINKS], conf[FILES]) == ("false", "false")
    assert launched(code={"spark.network.crypto.cipher": "AES/CTR/NoPadding"})[LINKS] == "true"


def test_spark_defaults_win_over_ours_and_lose_against_all_others() -> None:
    conf = launched(file={**OFF, "spark.ui.enabled": "true"})
    # The JVM reads the file itself, below the settings that it is given.
    assert not {LINKS, FILES, "spark.ui.enabled"} & conf.keys()
    assert conf["spark.decommission.enabled"] == "true"
    assert launched(file=OFF, code={LINKS: "true"})[LINKS] == "true"


@pytest.mark.parametrize(
    "settings", [dataclasses.replace(SETTINGS, encrypts=False), dataclasses.replace(SETTINGS, secret=None)]
)
def test_nothing_is_encrypted_if_the_cluster_does_not_encrypt_or_authenticate(settings: DriverSettings) -> None:
    assert not {LINKS, FILES} & launched(settings).keys()
    assert launched(settings, code={FILES: "true"})[FILES] == "true"


@pytest.mark.parametrize(("value", "encrypts"), [("tls", True), ("none", False)])
def test_a_cluster_that_does_not_encrypt_has_jobs_that_do_not(
    monkeypatch: pytest.MonkeyPatch, value: str, encrypts: bool
) -> None:
    monkeypatch.setattr(driver_settings, "find_java", lambda _: SETTINGS.java)
    monkeypatch.setattr(driver_settings, "find_class_archive", lambda *_: None)
    configuration = Configuration().with_texts({"security.encryption": value}, "task manager")
    spec = msgspec.structs.replace(DRIVER_SPEC, options={})
    assert JobSettings(spec, configuration, b"").of_spark(()).encrypts is encrypts


def test_tls_of_the_user_replaces_our_encryption_of_links() -> None:
    for conf in (launched(code=TLS), launched(file=TLS)):
        assert not any(key.startswith("spark.network.crypto") for key in conf)
        assert conf[FILES] == "true"
    assert launched(code={"spark.ssl.ui.enabled": "true"})[LINKS] == "true", "TLS of the page alone protects no link"


def test_tls_of_the_user_reaches_executors_and_its_passwords_no_command_line() -> None:
    described = application(TLS, "app-1", 4711, SETTINGS, "me", "python3")
    assert "-Dspark.ssl.rpc.enabled=true" in described.executor_java_options
    assert "-Dspark.ssl.rpc.keyStore=/keys/store.jks" in described.executor_java_options
    assert "hush" not in " ".join(described.executor_java_options)
    assert described.executor_env == {
        "SPARK_USER": "me",
        "_SPARK_SSL_RPC_KEY_PASSWORD": "hush-2",
        "_SPARK_SSL_RPC_KEY_STORE_PASSWORD": "hush-1",
        "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD": "hush-4",
    }


def test_embedded_master_has_the_users_tls() -> None:
    conf = master_configuration({**TLS, "spark.sql.x": "1"})
    assert TLS.items() <= conf.items()
    assert "spark.sql.x" not in conf


def test_sparks_page_is_on_loopback_unless_the_user_gives_it_a_filter() -> None:
    assert ui_address({"spark.ui.enabled": "true"}, SETTINGS) == "127.0.0.1"
    assert ui_address({"spark.ui.filters": "org.example.LoginFilter"}, SETTINGS) == "10.0.0.5"
