"""What replies show: which were during a takeover, how long they took, and which must not have come."""

import pytest

from campaign.load.replies import (
    Wait,
    Window,
    documented,
    kind_of,
    latencies,
    quantile,
    undocumented,
    until_accepted,
    windows,
)
from campaign.processes.calls import Answered
from campaign.processes.strikes import Strike

JOB = "0" * 32


def reply(sent: float, returned: float, status: int = 200, path: str = "/v1/overview", **others: object) -> Answered:
    return Answered("GET", path, status, sent, returned, **others)  # type: ignore[arg-type]


def strike(at: float) -> Strike:
    return Strike(kind="kill leader", target="jm-1", at=at, until=at)


def test_a_takeover_ends_with_the_first_reply_to_a_request_that_was_sent_after_it() -> None:
    replies = [
        reply(9.0, 11.0),  # sent before
        reply(10.5, 12.0, 503),  # a refusal
        reply(10.6, 12.5, is_vouched_for=False),  # by one that may not lead any more
        reply(11.0, 14.0),
        reply(11.5, 13.0),
    ]
    assert windows([strike(10.0)], replies) == [Window(10.0, 13.0)]


def test_losses_during_a_takeover_belong_to_it() -> None:
    replies = [reply(11.0, 13.0), reply(12.5, 16.0), reply(30.0, 30.1)]
    assert windows([strike(10.0), strike(12.0), strike(20.0)], replies) == [Window(10.0, 16.0), Window(20.0, 30.1)]


def test_a_takeover_without_a_reply_lasts_until_the_end() -> None:
    assert windows([strike(10.0)], [reply(1.0, 2.0)]) == [Window(10.0, float("inf"))]


def test_a_reply_is_during_a_takeover_if_it_waited_in_any_part_of_it() -> None:
    takeovers = [Window(10.0, 13.0), Window(20.0, 22.0)]
    replies = [
        reply(8.0, 9.0),
        reply(9.5, 10.5),
        reply(12.9, 13.2),
        reply(13.5, 13.6),
        reply(21.0, 21.5),
        reply(11.0, 11.1, 503),
        reply(13.5, 13.55, 307),
    ]
    found = latencies(replies, takeovers)
    assert {name: sorted(counts.elements()) for name, counts in found.items()} == {
        "other|outside": [100, 1000],
        "other|during": [300, 500, 1000],
    }


def test_a_job_waits_from_its_first_request_until_it_is_accepted() -> None:
    takeovers = [Window(10.0, 13.0)]
    found = until_accepted([Wait(1.0, 1.2), Wait(9.0, 14.5), Wait(13.5, 14.0)], takeovers)
    assert {when: sorted(counts.elements()) for when, counts in found.items()} == {
        "outside": [200, 500],
        "during": [5500],
    }


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1/jobs", "submit"),
        ("GET", f"/v1/jobs/{JOB}", "read a job"),
        ("GET", "/v1/jobs/overview?owner=x", "list jobs"),
        ("PATCH", f"/v1/jobs/{JOB}?mode=cancel", "cancel"),
        ("PUT", f"/v1/jobs/{JOB}/blobs/p-ab", "upload"),
        ("GET", "/v1/storage", "other"),
    ],
)
def test_replies_are_told_apart_by_what_was_asked(method: str, path: str, kind: str) -> None:
    assert kind_of(Answered(method, path, 200, 0.0, 1.0)) == kind


def test_a_server_error_that_the_documentation_does_not_name_is_a_violation() -> None:
    paths = {"/v1/jobs/{jobid}/stop": {"post": {"responses": {"202": None, "500": None, "504": None}}}}
    known = documented(paths)
    stop = f"/v1/jobs/{JOB}/stop"
    fine = [Answered("POST", stop, status, 0.0, 1.0) for status in (202, 404, 503, 504)]
    wrong = [
        Answered("POST", stop, 500, 0.0, 1.0),  # it is documented, as a bug
        Answered("GET", stop, 504, 0.0, 1.0),
        Answered("GET", "/v1/else", 507, 0.0, 1.0),
    ]
    assert undocumented([*fine, *wrong], known) == [
        f"POST {stop} was answered with 500",
        f"GET {stop} was answered with 504",
        "GET /v1/else was answered with 507",
    ]


def test_quantiles_of_counted_milliseconds() -> None:
    counts = {1: 50, 10: 49, 900: 1}
    assert [quantile(counts, share) for share in (0.5, 0.99, 1.0)] == [1, 10, 900]
