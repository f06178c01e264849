"""Strange requests come from the seed, and none does what would spoil a history."""

import random
import re

import msgspec

from campaign.load.strange import FORBIDDEN, Strange, draw
from emberkeep.rest.table import ROUTES

OPERATIONS = [(route.method, f"/v1{route.path}") for route in ROUTES]
EXAMPLE = msgspec.json.encode({"name": "a job", "artefacts": [{"name": "a.py", "size": 3}], "spark_conf": {"a": "b"}})


def drawn(seed: int, count: int) -> list[Strange]:
    chance = random.Random(seed)
    return [draw(chance, OPERATIONS, EXAMPLE) for _ in range(count)]


def test_the_seed_decides_the_requests() -> None:
    assert drawn(1, 50) == drawn(1, 50)
    assert drawn(1, 50) != drawn(2, 50)


def test_no_request_ends_the_cluster_or_gives_away_its_storage() -> None:
    assert set(FORBIDDEN) <= set(OPERATIONS)
    for request in drawn(3, 3000):
        for method, template in FORBIDDEN:
            pattern = "[^/]+".join(map(re.escape, re.split(r"\{\w+\}", template)))
            path = request.path.partition("?")[0]
            assert request.raw or request.method != method or not re.fullmatch(pattern, path)


def test_most_resources_are_reached() -> None:
    reached = {(each.method, each.path.partition("?")[0].count("/")) for each in drawn(5, 3000) if not each.raw}
    assert reached >= {(method, path.count("/")) for method, path in OPERATIONS if (method, path) not in FORBIDDEN}


def test_bodies_are_random_bytes_deep_large_cut_off_or_have_one_wrong_value() -> None:
    bodies = [each.body for each in drawn(7, 2000)]
    assert any(body.startswith(b"[" * 1000) for body in bodies)
    assert any(len(body) > 1024**2 for body in bodies)
    assert any(body and EXAMPLE.startswith(body) and body != EXAMPLE for body in bodies)
    assert any(b"artefacts" in body and not EXAMPLE.startswith(body) for body in bodies)
