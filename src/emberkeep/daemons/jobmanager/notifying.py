"""The settings of the leader's webhook, checked when a JobManager starts."""

from __future__ import annotations

from pathlib import Path

from emberkeep.adapters.webhooks.webhook import WebhookSettings
from emberkeep.base.configuration.options.monitoring import (
    WEBHOOK_CA_FILE,
    WEBHOOK_EVENTS,
    WEBHOOK_QUEUE,
    WEBHOOK_RETRY_FOR,
    WEBHOOK_SECRET_FILE,
    WEBHOOK_TIMEOUT,
    WEBHOOK_URL,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.configuration.web_servers import check_web_server
from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.private import read_private
from emberkeep.base.tls.contexts import outside_context
from emberkeep.notifications.model import parse_events

_SHORTEST_SECRET = 16  # characters


def webhook_settings(configuration: Configuration) -> WebhookSettings | None:
    """Return the settings of the webhook; None if none is configured. Raises InvalidInput, Fatal (the secret's file).

    A process reads them when it starts, so that a mistake is found then and not at a takeover.
    """
    url = configuration[WEBHOOK_URL]
    if not url:
        return None
    check_web_server(url, WEBHOOK_URL.key, sends="events", hint="write https://host/path")
    return WebhookSettings(
        url=url,
        secret=_secret(configuration),
        events=parse_events(configuration[WEBHOOK_EVENTS], WEBHOOK_EVENTS.key),
        timeout=configuration[WEBHOOK_TIMEOUT],
        patience=configuration[WEBHOOK_RETRY_FOR],
        queue=configuration[WEBHOOK_QUEUE],
        tls=outside_context(configuration[WEBHOOK_CA_FILE], WEBHOOK_CA_FILE.key),
    )


def _secret(configuration: Configuration) -> bytes:
    key = WEBHOOK_SECRET_FILE.key
    file = configuration[WEBHOOK_SECRET_FILE]
    if not file:
        raise InvalidInput(
            f"{key} is empty, and {WEBHOOK_URL.key} is set",
            field=key,
            hint="name a file (mode 0600) with a secret, for example from `openssl rand -hex 32`",
        )
    secret = read_private(Path(file), key)
    if len(secret) < _SHORTEST_SECRET:
        raise InvalidInput(
            f"{key}: the secret in {file} has fewer than {_SHORTEST_SECRET} characters",
            field=key,
            hint="write one from `openssl rand -hex 32`",
        )
    return secret.encode()
