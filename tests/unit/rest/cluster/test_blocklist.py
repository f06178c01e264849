"""The blocklist over HTTP: every status, every bad input."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import RetryLater, UnknownOutcome
from emberkeep.blocklist.model import PERMANENT, EvacuatedDrivers
from tests.unit.rest.fake_gateway import NOW_MS
from tests.unit.rest.server import Answer, Site

MARK, EVACUATE = "MARK_BLOCKED", "MARK_BLOCKED_AND_EVACUATE_TASKS"
PATHS = ("/v1/blocklist/nodes/node-2", "/v1/blocklist/taskmanagers/tm-2")


async def put(site: Site, path: str, **body: Any) -> Answer:
    return await site.request("PUT", path, data=msgspec.json.encode(body), headers={"Content-Type": "application/json"})


async def listed(site: Site) -> Any:
    return (await site.get("/v1/blocklist")).json()


@pytest.mark.req("BLK-1")
@pytest.mark.req("BLK-11")
async def test_the_list_has_task_managers_and_nodes_with_those_that_stand_there(site: Site) -> None:
    assert PERMANENT == 9223372036854775807
    assert await listed(site) == {"blockedTaskManagers": {}, "blockedNodes": {}}
    await put(site, "/v1/blocklist/nodes/node-2", action=MARK, cause="disk", endTimestamp=NOW_MS + 1)
    await put(site, "/v1/blocklist/nodes/nobody%20%2F%20here", action=EVACUATE, cause="rack 7", drivers="wait")
    await put(site, "/v1/blocklist/taskmanagers/tm-3", action=EVACUATE, cause="slow")
    assert await listed(site) == {
        "blockedTaskManagers": {
            "tm-3": {
                "action": EVACUATE,
                "startTimestamp": NOW_MS,
                "endTimestamp": PERMANENT,
                "cause": "slow",
            }
        },
        "blockedNodes": {
            "node-2": {
                "action": MARK,
                "startTimestamp": NOW_MS,
                "endTimestamp": NOW_MS + 1,
                "cause": "disk",
                "taskManagers": ["tm-127.0.0.2-1"],
            },
            "nobody / here": {
                "action": EVACUATE,
                "startTimestamp": NOW_MS,
                "endTimestamp": PERMANENT,
                "cause": "rack 7",
                "drivers": "wait",
                "taskManagers": [],
            },
        },
    }


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize(
    ("body", "drivers"),
    [
        ({"action": MARK}, EvacuatedDrivers.WAIT),
        ({"action": EVACUATE}, EvacuatedDrivers.RESTART),
        ({"action": EVACUATE, "drivers": "wait"}, EvacuatedDrivers.WAIT),
        ({"action": EVACUATE, "drivers": "restart"}, EvacuatedDrivers.RESTART),
    ],
)
async def test_drivers_are_restarted_elsewhere_unless_they_are_to_wait(
    site: Site, body: dict[str, Any], drivers: EvacuatedDrivers
) -> None:
    assert (await put(site, PATHS[0], cause="disk", **body)).status == 201
    (entry,) = (await site.gateway.blocklist()).entries
    assert entry.drivers is drivers


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize(
    ("before", "then", "drivers"),
    [
        ({"action": EVACUATE, "drivers": "wait"}, {"action": EVACUATE}, "wait"),
        ({"action": EVACUATE, "drivers": "wait"}, {"action": MARK}, "wait"),
        ({"action": EVACUATE, "drivers": "restart"}, {"action": EVACUATE}, None),
        ({"action": EVACUATE, "drivers": "restart"}, {"action": EVACUATE, "drivers": "wait"}, None),
        ({"action": EVACUATE, "drivers": "wait"}, {"action": EVACUATE, "drivers": "restart"}, None),
        ({"action": MARK}, {"action": EVACUATE}, None),
        ({"action": MARK}, {"action": EVACUATE, "drivers": "wait"}, "wait"),
        ({"action": MARK}, {"action": MARK}, None),
    ],
)
async def test_what_says_nothing_of_drivers_leaves_an_evacuation_as_it_is(
    site: Site, before: dict[str, Any], then: dict[str, Any], drivers: str | None
) -> None:
    for path in PATHS:
        await put(site, path, cause="disk", **before)
        answer = await put(site, path, cause="again", allowMerge=True, **then)
        assert (answer.status, answer.json().get("drivers")) == (202, drivers)


@pytest.mark.req("BLK-12")
@pytest.mark.req("BLK-13")
@pytest.mark.parametrize("path", PATHS)
async def test_a_new_entry_is_created_a_second_one_refused_or_merged(site: Site, path: str) -> None:
    first = await put(site, path, action=MARK, cause="disk", endTimestamp=NOW_MS + 100)
    assert first.status == 201
    entry = {"action": MARK, "startTimestamp": NOW_MS, "endTimestamp": NOW_MS + 100, "cause": "disk"}
    assert entry.items() <= first.json().items()

    second = await put(site, path, action=EVACUATE, cause="worse", endTimestamp=NOW_MS + 50)
    assert second.status == 409
    assert "blocked already" in second.json()["detail"]
    assert second.json()["errors"]
    explicit = await put(site, path, action=EVACUATE, cause="worse", allowMerge=False)
    assert explicit.status == 409

    third = await put(site, path, action=EVACUATE, cause="worse", endTimestamp=NOW_MS + 50, allowMerge=True)
    assert third.status == 202
    assert {**entry, "action": EVACUATE, "cause": "disk; worse"}.items() <= third.json().items()
    again = await put(site, path, action=MARK, cause="disk", allowMerge=True)
    assert again.status == 202
    assert (again.json()["cause"], again.json()["endTimestamp"]) == ("disk; worse", PERMANENT)


async def test_only_ids_of_task_managers_are_asked_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def views() -> None:
        pytest.fail("how far evacuations are costs as much as there are executors")

    monkeypatch.setattr(site.gateway, "task_managers", views)
    assert (await put(site, PATHS[0], action=EVACUATE, cause="disk")).json()["taskManagers"] == ["tm-127.0.0.2-1"]
    assert (await listed(site))["blockedNodes"]["node-2"]["taskManagers"] == ["tm-127.0.0.2-1"]


@pytest.mark.req("BLK-12")
async def test_allow_merge_without_an_entry_creates_one(site: Site) -> None:
    assert (await put(site, PATHS[0], action=MARK, cause="disk", allowMerge=True)).status == 201


@pytest.mark.req("BLK-12")
@pytest.mark.parametrize(("merge", "status"), [(True, 202), ("true", 202), (False, 409), ("false", 409)])
async def test_allow_merge_comes_as_a_boolean_or_as_a_string(site: Site, merge: bool | str, status: int) -> None:
    await put(site, PATHS[0], action=MARK, cause="disk")
    assert (await put(site, PATHS[0], action=MARK, cause="again", allowMerge=merge)).status == status


@pytest.mark.req("BLK-11")
@pytest.mark.req("BLK-12")
@pytest.mark.req("BLK-14")
@pytest.mark.parametrize("path", PATHS)
async def test_all_of_it_is_served_without_the_version_as_well(site: Site, path: str) -> None:
    unversioned = path.removeprefix("/v1")
    assert (await put(site, unversioned, action=MARK, cause="disk")).status == 201
    assert (await put(site, path, action=MARK, cause="disk")).status == 409
    answer = await site.get("/blocklist")
    assert answer.json() == await listed(site)
    kind, _, name = unversioned.removeprefix("/blocklist/").partition("/")
    assert name in answer.json()["blockedNodes" if kind == "nodes" else "blockedTaskManagers"]
    assert (await site.request("DELETE", unversioned)).status == 200
    assert (await site.request("DELETE", path)).status == 404
    assert (await put(site, unversioned.rpartition("/")[0] + "/", action=MARK, cause="disk")).status == 400


@pytest.mark.req("BLK-14")
@pytest.mark.parametrize("path", PATHS)
async def test_an_entry_is_deleted_once(site: Site, path: str) -> None:
    missing = await site.request("DELETE", path)
    assert (missing.status, missing.json()["errors"] != []) == (404, True)
    await put(site, path, action=MARK, cause="disk")
    deleted = await site.request("DELETE", path)
    assert (deleted.status, deleted.body) == (200, b"")
    assert await listed(site) == {"blockedTaskManagers": {}, "blockedNodes": {}}
    assert (await site.request("DELETE", path)).status == 404


@pytest.mark.req("BLK-15")
@pytest.mark.parametrize("end", [NOW_MS + 5, str(NOW_MS + 5), PERMANENT, str(PERMANENT)])
async def test_numbers_come_as_numbers_or_strings(site: Site, end: int | str) -> None:
    answer = await put(site, PATHS[0], action=MARK, cause="disk", endTimestamp=end)
    assert (answer.status, answer.json()["endTimestamp"]) == (201, int(end))


@pytest.mark.req("BLK-15")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"action": "BLOCK"}, "action"),
        ({"action": None}, "action"),
        ({"action": 1}, "action"),
        ({"cause": ""}, "cause"),
        ({"cause": " \n"}, "cause"),
        ({"cause": "x" * 501}, "cause"),
        ({"cause": "out of service:  new disk"}, "cause"),
        ({"cause": 5}, "cause"),
        ({"cause": None}, "cause"),
        ({"endTimestamp": NOW_MS}, "endTimestamp"),
        ({"endTimestamp": NOW_MS - 1}, "endTimestamp"),
        ({"endTimestamp": -1}, "endTimestamp"),
        ({"endTimestamp": "0"}, "endTimestamp"),
        ({"endTimestamp": PERMANENT + 1}, "endTimestamp"),
        ({"endTimestamp": str(PERMANENT + 1)}, "endTimestamp"),
        ({"endTimestamp": 10**30}, "endTimestamp"),
        ({"endTimestamp": "tomorrow"}, "endTimestamp"),
        ({"endTimestamp": ""}, "endTimestamp"),
        ({"endTimestamp": "9" * 5000}, "endTimestamp"),
        ({"endTimestamp": NOW_MS + 0.5}, "endTimestamp"),
        ({"endTimestamp": True}, "endTimestamp"),
        ({"endTimestamp": [1]}, "endTimestamp"),
        ({"allowMerge": "yes"}, "allowMerge"),
        ({"allowMerge": ""}, "allowMerge"),
        ({"allowMerge": None}, "allowMerge"),
        ({"allowMerge": 1}, "allowMerge"),
        ({"allowmerge": True}, "allowmerge"),
        ({"drivers": "restart"}, "drivers"),
        ({"action": EVACUATE, "drivers": "stay"}, "drivers"),
        ({"action": EVACUATE, "drivers": True}, "drivers"),
    ],
)
async def test_bad_input_names_the_field_and_changes_nothing(site: Site, change: dict[str, Any], field: str) -> None:
    for path in PATHS:
        answer = await put(site, path, **{"action": MARK, "cause": "disk", **change})
        assert (answer.status, answer.json().get("field")) == (400, field), answer.body
    assert await listed(site) == {"blockedTaskManagers": {}, "blockedNodes": {}}


@pytest.mark.req("BLK-15")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("nodes/", "nodeid"),
        ("nodes/%20", "nodeid"),
        ("nodes/%20a", "nodeid"),
        ("nodes/a%0Ab", "nodeid"),
        ("nodes/" + "a" * 254, "nodeid"),
        ("taskmanagers/", "taskmanagerid"),
        ("taskmanagers/a%20b", "taskmanagerid"),
        ("taskmanagers/" + "a" * 129, "taskmanagerid"),
    ],
)
async def test_a_bad_id_is_named(site: Site, path: str, field: str) -> None:
    path = f"/v1/blocklist/{path}"
    for answer in (await put(site, path, action=MARK, cause="disk"), await site.request("DELETE", path)):
        assert (answer.status, answer.json()["field"]) == (400, field)
    assert await listed(site) == {"blockedTaskManagers": {}, "blockedNodes": {}}


@pytest.mark.req("BLK-15")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"cause": "x"}', b'{"action": "MARK_BLOCKED"}', b"\xff"])
async def test_a_bad_body_is_refused(site: Site, body: bytes) -> None:
    answer = await site.request("PUT", PATHS[0], data=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert answer.json()["field"]
    assert await listed(site) == {"blockedTaskManagers": {}, "blockedNodes": {}}


async def test_what_the_store_says_is_passed_on(site: Site) -> None:
    for refusal, status in ((RetryLater("not now"), 503), (UnknownOutcome("who knows"), 504)):
        site.gateway.refusal = refusal
        assert (await put(site, PATHS[0], action=MARK, cause="disk")).status == status
        assert (await site.request("DELETE", PATHS[0])).status == status


@pytest.mark.req("BLK-16")
async def test_blocked_nodes_are_a_gauge(site: Site) -> None:
    assert b"emberkeep_num_blocked_nodes 0.0" in (await site.get("/metrics")).body
    for path in (*PATHS, "/v1/blocklist/nodes/other"):
        await put(site, path, action=MARK, cause="disk")
    assert b"emberkeep_num_blocked_nodes 2.0" in (await site.get("/metrics")).body
