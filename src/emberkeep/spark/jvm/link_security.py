"""How the processes of one Spark application authenticate each other and encrypt what they exchange and spill.

Pure: settings in, settings out.
"""

from __future__ import annotations

from collections.abc import Mapping

SECRET_KEY = "spark.authenticate.secret"  # noqa: S105 - the setting's name
SSL_PREFIX = "spark.ssl."
# Defaults; what the user sets wins.
_LINKS = {
    "spark.network.crypto.enabled": "true",
    # Version 1 does not bind a session's keys to its handshake, and CTR without GCM does not notice changed bytes.
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # Otherwise, whoever disturbs the handshake gets a connection that is authenticated but not encrypted.
    "spark.network.crypto.saslFallback": "false",
}
FILE_ENCRYPTION = "spark.io.encryption.enabled"
_FILES = {FILE_ENCRYPTION: "true"}
# Spark reads the passwords of `spark.ssl.rpc` from these variables of an executor.
_PASSWORD_VARIABLES = {
    "keyPassword": "_SPARK_SSL_RPC_KEY_PASSWORD",
    "privateKeyPassword": "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
    "keyStorePassword": "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
    "trustStorePassword": "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
}


def authentication(secret: str | None) -> dict[str, str]:
    """Return the settings that turn authentication on; empty without a secret."""
    return {} if secret is None else {"spark.authenticate": "true", SECRET_KEY: secret}


def encryption(users: Mapping[str, str]) -> dict[str, str]:
    """Return the default settings that encrypt links and local files. ``users``: the user's settings.

    Spark encrypts with TLS if the user has set that up, and warns if its other encryption is on, too.
    """
    uses_tls = users.get(f"{SSL_PREFIX}rpc.enabled", "").strip().lower() == "true"
    return _FILES if uses_tls else _LINKS | _FILES


def is_secret(key: str) -> bool:
    """True if process lists must not show the setting's value: the secret, and passwords of ``spark.ssl``."""
    return key == SECRET_KEY or (key.startswith(SSL_PREFIX) and "password" in key.lower())


def password_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which an executor learns the passwords of ``spark.ssl.rpc``.

    As in Spark, a password of ``spark.ssl`` counts where ``spark.ssl.rpc`` has none.
    """
    passwords = {
        variable: settings.get(f"{SSL_PREFIX}rpc.{name}") or settings.get(f"{SSL_PREFIX}{name}", "")
        for name, variable in _PASSWORD_VARIABLES.items()
    }
    return {variable: password for variable, password in passwords.items() if password}
