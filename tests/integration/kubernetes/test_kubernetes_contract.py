"""The resource driver for Kubernetes keeps its contract over a real API server, too. Its pods do nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from emberkeep.adapters.kubernetes.api import KubernetesApi
from emberkeep.base.errors import InvalidInput, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.daemons.jobmanager.resource_drivers.kubernetes_pods import KubernetesPods
from emberkeep.slots.resource_driver import NodeOutage
from tests.integration.conditions import until
from tests.integration.kubernetes.real_kubernetes import (
    NAMESPACE,
    NODES,
    RealKubernetes,
    real_kubernetes,
    why_impossible,
)
from tests.support.contracts.resource_driver import FREE, NONE, Platform, ResourceDriverContract, blocked, listed
from tests.support.resource_drivers.kubernetes_driver import kubernetes_driver

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]


class KubernetesPlatform:
    """``root``: the state directory of a cluster of its own."""

    def __init__(self, root: Path, kubernetes: RealKubernetes) -> None:
        first, second = NODES
        self.nodes = (first, second)
        self.kubernetes = kubernetes
        self._root = root

    def leader(self, settings: Mapping[str, str] | None = None) -> KubernetesPods:
        api = KubernetesApi(NAMESPACE, str(self.kubernetes.config_file), "", timeout=2.0)
        own = {"process.taskmanager.working-dir": str(self._root / "work"), "taskmanager.cpu.cores": "1"}
        return kubernetes_driver(self._root, api, {**own, **(settings or {})})

    def ends(self, task_manager: TaskManagerId) -> None:
        node = self.kubernetes.settled()[task_manager]
        uid = self.kubernetes.pods()[task_manager]["metadata"]["uid"]
        self.kubernetes.kubelets[node].kill_container(uid)
        until(lambda: self.kubernetes.pods()[task_manager]["status"]["phase"] == "Failed", self.kubernetes.story)

    def node_of(self, task_manager: TaskManagerId) -> str:
        return self.kubernetes.settled()[task_manager]

    def running(self, task_manager: TaskManagerId) -> int:
        return int(task_manager in self.kubernetes.settled())

    async def interrupted_start(self) -> TaskManagerId:
        return (await self.leader().start(BlockedPlaces(), frozenset())).id

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        self.kubernetes.freeze("kube-apiserver")
        yield
        self.kubernetes.thaw("kube-apiserver")


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    with real_kubernetes(tmp_path_factory.mktemp("kubernetes") / "all", os.environ) as kubernetes:
        yield kubernetes


class TestKubernetesPods(ResourceDriverContract):
    @pytest.fixture
    def platform(
        self, tmp_path: Path, kubernetes: RealKubernetes, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[KubernetesPlatform]:
        program = tmp_path / "program"
        program.write_text("#!/bin/sh\nexec sleep 1000\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        yield KubernetesPlatform(tmp_path / "state", kubernetes)
        kubernetes.delete_pods()

    async def test_one_that_comes_back_avoids_the_node_that_was_blocked_since(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        node = platform.node_of(one)
        platform.ends(one)
        assert await listed(driver) == {one: False}
        await driver.revive(one, blocked(node))
        assert platform.node_of(one) != node

    async def test_one_without_a_free_node_is_queued_until_there_is_room(self, platform: KubernetesPlatform) -> None:
        driver = platform.leader()
        first = (await driver.start(FREE, NONE)).id
        second = (await driver.start(FREE, {first})).id
        until(lambda: len(platform.kubernetes.settled()) == 2, platform.kubernetes.story)
        third = (await driver.start(FREE, {first, second})).id
        queued = [each.id for each in await driver.survey() if each.queued]
        assert queued == [third]
        await driver.end(first)
        assert platform.running(third) == 1
        assert [each.id for each in await driver.survey() if each.queued] == []

    async def test_the_name_of_a_pod_on_a_lost_node_is_not_used_again(self, platform: KubernetesPlatform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        kubelet = platform.kubernetes.kubelets[platform.node_of(one)]
        kubelet.is_lost = True
        try:
            await driver.end(one)
            assert await listed(driver) == {}
            assert await listed(platform.leader()) == {}
            assert (await platform.leader().start(FREE, NONE)).id != one
            assert "deletionTimestamp" in platform.kubernetes.pods()[one]["metadata"]
        finally:
            kubelet.is_lost = False
        assert platform.running(one) == 0
        assert (await driver.start(FREE, NONE)).id == one

    async def test_one_that_others_delete_is_listed_as_dead_once_its_processes_have_ended(
        self, platform: KubernetesPlatform
    ) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        platform.node_of(one)
        assert await listed(driver) == {one: True}
        platform.kubernetes.delete_pods()
        assert await listed(driver) == {one: False}
        await driver.revive(one, FREE)
        assert platform.running(one) == 1

    async def test_a_cordoned_node_is_reported_until_it_is_back(self, platform: KubernetesPlatform) -> None:
        driver, (node, _), core = platform.leader(), platform.nodes, platform.kubernetes.core
        core.patch_node(node, {"spec": {"unschedulable": True}})
        try:
            assert await driver.outages() == (NodeOutage(node, "Kubernetes: cordoned"),)
        finally:
            core.patch_node(node, {"spec": {"unschedulable": None}})
        assert await driver.outages() == ()

    async def test_a_refusal_has_the_words_of_kubernetes(self, platform: KubernetesPlatform, tmp_path: Path) -> None:
        template = tmp_path / "pod.yaml"
        template.write_text("spec: {containers: [{name: taskmanager, resources: {requests: {gpu: none}}}]}")
        driver = platform.leader({"kubernetes.pod-template-file.default": str(template)})
        with pytest.raises(RetryLater, match="Kubernetes refuses"):
            await driver.start(FREE, NONE)

    def test_a_template_that_is_no_pod_is_refused(self, platform: KubernetesPlatform, tmp_path: Path) -> None:
        template = tmp_path / "pod.yaml"
        template.write_text("spec: {tolerations: none}")
        with pytest.raises(InvalidInput, match="tolerations"):
            platform.leader({"kubernetes.pod-template-file.default": str(template)})
