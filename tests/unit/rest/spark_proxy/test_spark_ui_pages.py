"""What a page of a Spark UI becomes below a ticket."""

from __future__ import annotations

import pytest

from emberkeep.rest.spark_proxy.pages import below, page_headers, shown_status


def directives(policy: str) -> dict[str, str]:
    return dict(part.strip().partition(" ")[::2] for part in policy.split(";"))


@pytest.mark.req("SEC-10")
def test_a_page_loads_and_calls_only_what_is_below_its_ticket_and_opens_no_window() -> None:
    policy = directives(page_headers("https://node:8082", "/ticket", "/jobs/")["Content-Security-Policy"])
    for kind in ("script-src", "style-src", "img-src", "font-src", "connect-src", "form-action"):
        assert policy[kind].split()[0] == "https://node:8082/ticket/"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"].split()[1:] == ["'unsafe-inline'", "'unsafe-eval'"], "Spark's pages need both"
    assert "allow-popups" not in policy["sandbox"]
    assert not {"frame-src", "worker-src"} & policy.keys()


@pytest.mark.req("SEC-10")
def test_an_address_of_ipv6_has_no_notation_in_a_policy() -> None:
    policy = directives(page_headers("https://[::1]:8082", "/ticket", "/jobs/")["Content-Security-Policy"])
    assert policy["connect-src"] == "'self'"


def test_static_files_are_kept_by_the_browser_and_pages_are_not() -> None:
    assert page_headers("http://a", "/t", "/static/webui.js")["Cache-Control"].startswith("private")
    assert page_headers("http://a", "/t", "/api/v1/applications")["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("", ""),
        ("/jobs/", "/t/jobs/"),
        ("/t/jobs/?a=1", "/t/jobs/?a=1"),
        ("/t", "/t"),
        ("/tt/jobs/", "/t/tt/jobs/"),
    ],
)
def test_a_redirect_stays_below_the_ticket(location: str, path: str) -> None:
    assert below("/t", location) == path


@pytest.mark.parametrize(("status", "shown"), [(200, 200), (304, 304), (599, 599), (101, 502), (999, 502), (0, 502)])
def test_a_jvm_cannot_send_a_status_that_a_page_has_not(status: int, shown: int) -> None:
    assert shown_status(status) == shown
