"""What the resource driver for Kubernetes does besides its contract, over an API server in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedTaskManager
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.kubernetes_pods import KubernetesPods
from emberkeep.slots.resource_driver import NodeOutage, StartedTaskManager
from tests.support.contracts.resource_driver import FREE, NONE, listed
from tests.support.resource_drivers.fake_kubernetes import FakeKubernetes
from tests.support.resource_drivers.kubernetes_driver import kubernetes_driver

pytestmark = pytest.mark.anyio


@pytest.fixture
def kubernetes() -> FakeKubernetes:
    return FakeKubernetes("n1", "n2")


async def test_a_pod_without_a_node_is_queued(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    driver = kubernetes_driver(tmp_path, kubernetes)
    taken: set[TaskManagerId] = set()
    for _ in range(3):
        taken.add((await driver.start(FREE, taken)).id)
    assert await driver.survey() == (
        StartedTaskManager(sorted(taken)[0], "n1"),
        StartedTaskManager(sorted(taken)[1], "n2"),
        StartedTaskManager(sorted(taken)[2], "", queued=True),
    )


async def test_pods_are_not_listed_more_often_than_the_interval_unless_something_changed(
    tmp_path: Path, kubernetes: FakeKubernetes
) -> None:
    now = 0.0
    driver = kubernetes_driver(tmp_path, kubernetes, now=lambda: now)
    for _ in range(3):
        await driver.survey()
    assert kubernetes.calls.count("list pods") == 1
    await driver.start(FREE, NONE)
    await driver.survey()
    assert kubernetes.calls.count("list pods") == 2
    now = 2.0
    await driver.survey()
    assert kubernetes.calls.count("list pods") == 3


async def test_an_api_server_that_fails_is_asked_more_and_more_rarely(
    tmp_path: Path, kubernetes: FakeKubernetes
) -> None:
    now = 0.0
    driver = kubernetes_driver(tmp_path, kubernetes, now=lambda: now)
    one = (await driver.start(FREE, NONE)).id
    await driver.survey()
    now, kubernetes.outage, kubernetes.calls = 100.0, Unavailable("it is away"), []
    while now < 132.0:  # each cycle of the JobManager
        for call in (driver.survey, driver.outages, lambda: driver.end(one)):
            with pytest.raises(RetryLater, match="it is away"):
                await call()
        now += 0.5
    assert sorted(kubernetes.calls) == 6 * ["delete"] + 6 * ["list nodes"] + 6 * ["list pods"]
    kubernetes.outage, now = None, 148.0
    assert await listed(driver) == {one: True}
    await driver.end(one)
    assert await listed(driver) == {}


async def test_a_pod_that_others_have_deleted_is_dead_until_it_is_revived(
    tmp_path: Path, kubernetes: FakeKubernetes
) -> None:
    driver = kubernetes_driver(tmp_path, kubernetes)
    one = (await driver.start(FREE, NONE)).id
    await driver.survey()
    kubernetes.vanish(*kubernetes.manifests)
    assert await listed(driver) == {one: False}
    assert await listed(driver) == {one: False}
    await driver.revive(one, FREE)
    assert await listed(driver) == {one: True}
    kubernetes.vanish(*kubernetes.manifests)
    assert await listed(driver) == {one: False}
    await driver.end(one)
    assert await listed(driver) == {}


async def test_the_name_of_a_pod_whose_end_is_not_confirmed_is_not_used(
    tmp_path: Path, kubernetes: FakeKubernetes
) -> None:
    driver = kubernetes_driver(tmp_path, kubernetes)
    one = (await driver.start(FREE, NONE)).id
    kubernetes.silent = {"n1"}
    await driver.end(one)
    for each in (driver, kubernetes_driver(tmp_path, kubernetes)):
        assert await listed(each) == {}
    assert (await driver.start(FREE, NONE)).id == "tm-1"


async def test_a_start_whose_reply_is_lost_is_found_by_the_next_survey(
    tmp_path: Path, kubernetes: FakeKubernetes
) -> None:
    driver = kubernetes_driver(tmp_path, kubernetes)
    kubernetes.loses_reply = UnknownOutcome("no reply")
    with pytest.raises(UnknownOutcome):
        await driver.start(FREE, NONE)
    assert await listed(driver) == {"tm-0": True}
    assert len(kubernetes.manifests) == 1


async def test_another_one_starts_while_the_first_is_blocked_itself(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    entry = BlockedTaskManager(id=TaskManagerId("tm-0"), action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("x",))
    started = await kubernetes_driver(tmp_path, kubernetes).start(BlockedPlaces((entry,)), NONE)
    assert started.id == "tm-1"


async def test_a_cordoned_node_is_out_of_service(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    kubernetes.cordoned = {"n2": "1970-01-01T00:00:01Z"}
    driver = kubernetes_driver(tmp_path, kubernetes)
    assert await driver.outages() == (NodeOutage("n2", "Kubernetes: cordoned", 1000),)


async def test_a_name_that_others_use_is_refused(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    driver = kubernetes_driver(tmp_path, kubernetes)
    await driver.start(FREE, NONE)
    (pod,) = kubernetes.manifests.values()
    pod["metadata"]["labels"] = {}
    with pytest.raises(RetryLater, match="exists already"):
        await kubernetes_driver(tmp_path, kubernetes).start(FREE, NONE)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"taskmanager.memory.process.size": "0"}, "memory"),
        ({"kubernetes.pod-template-file.default": "/nowhere.yaml"}, "cannot be used"),
        ({"high-availability.type": "zookeeper", "high-availability.cluster-id": "Prod_1"}, "Prod_1"),
    ],
)
def test_settings_that_make_no_pods_are_refused(
    tmp_path: Path, kubernetes: FakeKubernetes, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        kubernetes_driver(tmp_path, kubernetes, settings)


def test_a_template_with_something_else_is_refused(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("kind: Deployment")
    with pytest.raises(InvalidInput, match="does not contain a pod"):
        kubernetes_driver(tmp_path, kubernetes, {"kubernetes.pod-template-file.default": str(template)})


@pytest.mark.parametrize(
    "text",
    [
        "spec: {containers: {name: taskmanager}}",
        "spec: {containers: [null]}",
        "spec: {containers: [{name: taskmanager, env: {A: b}}]}",
        "spec: {volumes: {name: shared}}",
        "metadata: text",
        "metadata: {annotations: {since: 2026-11-29}}",
    ],
)
def test_a_template_of_another_shape_is_refused(tmp_path: Path, kubernetes: FakeKubernetes, text: str) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(text)
    with pytest.raises(InvalidInput, match="does not make a pod") as caught:
        kubernetes_driver(tmp_path, kubernetes, {"kubernetes.pod-template-file.default": str(template)})
    assert caught.value.field == "kubernetes.pod-template-file.default"


def test_a_job_manager_that_pods_cannot_reach_is_refused(tmp_path: Path, kubernetes: FakeKubernetes) -> None:
    configuration = Configuration().with_texts({"taskmanager.memory.process.size": "1g"}, "test")
    with pytest.raises(InvalidInput, match=r"cannot reach the JobManager at 127\.0\.0\.1"):
        KubernetesPods(configuration, StateLayout(tmp_path, configuration), "127.0.0.1:8081", kubernetes)
