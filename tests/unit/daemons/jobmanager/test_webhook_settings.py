"""The settings of the webhook: what is refused when a JobManager starts, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.daemons.jobmanager.notifying import webhook_settings
from emberkeep.notifications.model import EventKind

URL = "https://hooks.example/T000/very-secret"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef\n")
    return path


def configuration(**values: object) -> Configuration:
    texts = {f"notifications.webhook.{key.replace('_', '-')}": str(value) for key, value in values.items()}
    return Configuration().with_texts(texts, "test")


def test_there_is_no_webhook_without_an_address(secret: Path) -> None:
    assert webhook_settings(configuration(secret_file=secret)) is None


def test_all_settings_are_used(secret: Path) -> None:
    found = webhook_settings(
        configuration(
            url=URL,
            secret_file=secret,
            events=" job-failed, alarm-raised,",
            timeout="2s",
            retry_for="1min",
            queue_size=5,
        )
    )
    assert found is not None
    assert (found.url, found.secret, found.queue) == (URL, b"0123456789abcdef", 5)
    assert found.events == {EventKind.JOB_FAILED, EventKind.ALARM_RAISED}
    assert (found.timeout, found.patience, found.tls) == (2.0, 60.0, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/hook", "http://localhost/hook", "http://[::1]:9/"])
def test_events_may_go_unencrypted_to_this_machine(secret: Path, url: str) -> None:
    assert webhook_settings(configuration(url=url, secret_file=secret)) is not None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"url": "ftp://hooks.example/"}, "webhook.url is not the address of a web server"),
        ({"url": "hooks"}, "webhook.url is not the address of a web server"),
        ({"url": "https://hooks.example:99999/"}, "webhook.url is not an address"),
        ({"url": "https://user:very-secret/part@hooks.example/"}, "webhook.url is not an address"),
        ({"url": "http://hooks.example/very-secret"}, "would send events unencrypted to hooks.example"),
        ({"url": URL, "secret_file": ""}, "secret-file is empty"),
        ({"url": URL, "events": "job-failed,job-lost"}, "there is no event 'job-lost'"),
        ({"url": URL, "ca_file": "/no/such/file"}, "ca-file: cannot read /no/such/file"),
    ],
)
def test_what_cannot_work_is_refused_without_showing_the_address(
    secret: Path, values: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        webhook_settings(configuration(**{"secret_file": secret, **values}))
    assert text in refused.value.message
    assert "very-secret" not in f"{refused.value.message} {refused.value.hint}"


def test_a_secret_that_others_can_read_or_guess_is_refused(secret: Path) -> None:
    secret.write_text("short")
    with pytest.raises(InvalidInput, match="fewer than 16 characters"):
        webhook_settings(configuration(url=URL, secret_file=secret))
    secret.chmod(0o644)
    with pytest.raises(Fatal, match="can be read or written by others"):
        webhook_settings(configuration(url=URL, secret_file=secret))
