"""Which settings are hidden."""

from __future__ import annotations

import pytest

from emberkeep.rest.serving.redaction import HIDDEN, redacted


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
    ],
)
def test_other_settings_are_shown(key: str, value: str) -> None:
    assert redacted({key: value}) == {key: value}
