"""What a connection of Airflow says about a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.endpoint import Endpoint
from emberkeep_airflow.connection import ClusterAccess, cluster_access


@dataclass(frozen=True)
class Fields:
    """As Airflow's Connection."""

    host: str | None = "jm"
    port: int | None = None
    schema: str | None = None
    password: str | None = "secret"
    extra_dejson: dict[str, Any] = field(default_factory=dict)
    conn_id: str = "prod"


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        (Fields("jm", 8081), "https://jm:8081"),
        (Fields("jm", 8081, "HTTPS"), "https://jm:8081"),
        (Fields("https://jm:8081/"), "https://jm:8081"),
        (Fields("https://proxy/emberkeep"), "https://proxy/emberkeep"),
        (Fields("https://jm/", 8081), "https://jm:8081"),
        (Fields("https://proxy/emberkeep", 8443), "https://proxy:8443/emberkeep"),
        (Fields("proxy/emberkeep/", 8443), "https://proxy:8443/emberkeep"),
        (Fields("https://[::1]", 8081), "https://[::1]:8081"),
        (Fields("127.0.0.1", 8081, "http"), "http://127.0.0.1:8081"),
        (Fields("::1", 8081, "http"), "http://[::1]:8081"),
        (Fields("jm", 8081, "http", password=""), "http://jm:8081"),
        (Fields("jm", 8081, "http", extra_dejson={"insecure_network": True}), "http://jm:8081"),
        (Fields("jm", 8081, "http", extra_dejson={"insecure_network": "true"}), "http://jm:8081"),
    ],
)
def test_the_address_is_made_of_host_port_and_scheme(fields: Fields, url: str) -> None:
    assert cluster_access(fields).endpoint.url == url


def test_the_extra_fields_are_read() -> None:
    extra = {
        "ca": "/etc/ca.pem",
        "others": "jm2:8081, https://jm3:8081, ",
        "namespace": "etl",
        "deployment": "prod",
        "console": "https://console.example.org/",
        "insecure_network": None,
    }
    access = cluster_access(Fields("jm", 8081, extra_dejson=extra))
    endpoint = Endpoint(
        "https://jm:8081", "secret", "connection prod", ("https://jm2:8081", "https://jm3:8081"), "/etc/ca.pem"
    )
    assert access == ClusterAccess(endpoint, "etl", "prod", "https://console.example.org")
    assert access.job_page("abc") == "https://console.example.org/jobs/abc"


def test_a_job_page_is_the_job_managers_without_a_console() -> None:
    assert cluster_access(Fields("jm", 8081)).job_page("abc") == "https://jm:8081/jobs/abc"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (Fields(None), "connection prod names no JobManager"),
        (Fields("http://jm:8081", 9000), "connection prod: the host has a port already"),
        (Fields("jm:8081", 8081), "the host has a port already"),
        (Fields("https://[::1]:8081/path", 9000), "the host has a port already"),
        (Fields("jm", schema="ftp"), "is not the URL of a JobManager"),
        (Fields("jm", schema="http"), "http://jm does not encrypt"),
        (Fields("localhost", schema="http", extra_dejson={"others": "jm2"}), "http://jm2 does not encrypt"),
        (Fields("jm", schema="http", extra_dejson={"insecure_network": "maybe"}), "insecure_network is 'maybe'"),
    ],
)
def test_a_connection_that_cannot_be_used_says_why(fields: Fields, what: str) -> None:
    with pytest.raises(InvalidInput, match=what) as caught:
        cluster_access(fields)
    assert "secret" not in str(caught.value)
