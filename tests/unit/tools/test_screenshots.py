"""Each page of the console has a picture."""

from __future__ import annotations

import re

from tests.unit.web.test_session_routes import PAGES
from tools.screenshots import pictures

_NOT_HERE = {"/jobs/{jobid}/spark-ui"}  # leads to another port


def test_each_page_has_a_picture() -> None:
    paths = [path.partition("?")[0] for path in pictures("1" * 32, "2" * 32, "/jobs/1/logs/driver-stderr.1").values()]
    patterns = {route: re.compile(re.sub(r"\{\w+\}", "[^/]+", route)) for route in PAGES.keys() - _NOT_HERE}
    assert [route for route, pattern in patterns.items() if not any(map(pattern.fullmatch, paths))] == []
