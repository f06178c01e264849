"""Which settings are hidden."""

from __future__ import annotations

import pytest

from emberkeep.base.redaction import HIDDEN, redacted, redacted_arguments


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.hadoop.fs.azure.account.key.store", "x"),
        ("spark.ssl.keyStorePassword", "x"),
        ("spark.executorEnv.API_KEY", "x"),
        ("spark.executorEnv.GITHUB_TOKEN", "x"),
        ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x"),
        ("spark.executorEnv.DB_PASS", "x"),
        ("spark.executorEnv.PWD_OF_DB", "x"),
        ("spark.hadoop.fs.azure.sas.container.account", "x"),
        ("spark.my.connectionString", "x"),
        ("spark.my.location", "https://store/c/f?sv=2024-11-04&sp=r&sig=abc%2Fdef"),
        ("spark.my.location", "https://bucket/f?X-Amz-Algorithm=A&X-Amz-Signature=0a1b"),
        ("spark.my.header", "Authorization: Bearer abc"),
        ("spark.my.store", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc=="),
        ("spark.my.redis", "redis://:hunter2@cache:6379"),
        ("spark.my.database", "jdbc:postgresql://me:hunter2@db/flights"),
    ],
)
def test_secrets_are_hidden(key: str, value: str) -> None:
    assert redacted({key: value}) == {key: HIDDEN}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "8"),
        ("spark.my.url", "https://example.org:8443/a@b"),
        ("restart-strategy.type", "none"),
        ("spark.my.author", "Ann"),
        ("spark.my.bypass", "on"),
        ("spark.driver.extraClassPath", "/opt/passport.jar"),
        ("spark.authenticate", "true"),
    ],
)
def test_other_settings_are_shown(key: str, value: str) -> None:
    assert redacted({key: value}) == {key: value}


@pytest.mark.req("SEC-14")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--db-password", "hunter2", "--input", "/data"], ["--db-password", HIDDEN, "--input", "/data"]),
        (["--db-password=hunter2"], [f"--db-password={HIDDEN}"]),
        (["-pass", "hunter2"], ["-pass", HIDDEN]),
        (["DB_PASS=hunter2"], [f"DB_PASS={HIDDEN}"]),
        (["https://me:hunter2@host/x"], [HIDDEN]),
        (["https://store/c?sv=1&sig=abc"], [HIDDEN]),
        (["--to=https://me:hunter2@host/x=1"], [f"--to={HIDDEN}"]),
        (["-Dto.url=https://me:hunter2@host"], [f"-Dto.url={HIDDEN}"]),
        (["dbpwd=hunter2"], [f"dbpwd={HIDDEN}"]),
        (["--no-token", "--verbose"], ["--no-token", "--verbose"]),
        (["token", "next"], ["token", "next"]),
        (["--author", "Ann", "a=b", "-5"], ["--author", "Ann", "a=b", "-5"]),
    ],
)
def test_secrets_in_arguments_are_hidden(arguments: list[str], shown: list[str]) -> None:
    assert redacted_arguments(arguments) == shown
