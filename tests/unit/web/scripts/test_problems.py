"""How the pages' JavaScript reads replies, run by Node.js where it is installed: browsers run the same module."""

import json
from typing import Any

import pytest

from tests.unit.web.conftest import JavaScript

DETAIL = {"detail": "the job has ended", "hint": "submit it again"}


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (409, json.dumps(DETAIL), ["the job has ended (submit it again)", 409]),
        (409, json.dumps({"detail": "the job has ended"}), ["the job has ended", 409]),
        (502, "<html><h1>Bad Gateway</h1></html>", ["HTTP status 502, and no reply of the JobManager", None]),
        (504, "", ["HTTP status 504, and no reply of the JobManager", None]),
    ],
)
def test_what_has_gone_wrong_is_told_in_words(javascript: JavaScript, status: int, body: str, told: list[Any]) -> None:
    reply = f"new Response({json.dumps(body)}, {{status: {status}}})"
    before = f"const problem = await problems.problemOf({reply}).catch((error) => error);"
    assert javascript(["problems"], "[problem.message, problem.status ?? null]", before=before) == told


def test_a_reply_is_read(javascript: JavaScript) -> None:
    before = "const body = await problems.bodyOf(new Response(JSON.stringify({logs: []})));"
    assert javascript(["problems"], "body", before=before) == {"logs": []}
