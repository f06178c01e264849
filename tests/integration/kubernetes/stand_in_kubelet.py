"""A node of a real Kubernetes, without a container runtime: it runs the first container's command of each pod.

The command is the first process of a PID namespace, as in a container, with the pod's empty directory at its place.
Image, resources and all else are ignored. Reports and ends are those of a kubelet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
from kubernetes import client
from urllib3.exceptions import HTTPError

_POLL = 0.1
_TIMEOUT = 5.0
_END_OF = {"gracePeriodSeconds": 0}  # a pod of this uid: by now, its name may be that of the next one
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# Its arguments: the place of the volume, the directory that it is, the command.
_CONTAINER = 'place=$1; mkdir -p "$place"; mount --bind "$2" "$place"; shift 2; exec "$@"'


class _Running:
    """The container of one pod. ``ordered``: when it got SIGTERM, None before."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self.ordered: float | None = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the container's first process."""
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            for child in psutil.Process(self.process.pid).children():
                os.kill(child.pid, number)


class StandInKubelet:
    """``start`` first; ``close`` kills what it runs. ``is_lost``: it does and reports nothing more."""

    def __init__(self, core: Any, node: str, address: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.is_lost = False
        self._core = core
        self._node = node
        self._address = address
        self._directory = directory
        self._environment = environment
        self._pods: dict[str, _Running] = {}  # by uid
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=node, daemon=True)

    def start(self) -> None:
        self._directory.mkdir()
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        for running in self._pods.values():
            running.process.kill()
            running.process.wait()

    def kill_container(self, uid: str) -> None:
        """Kill a container, as the kernel does if it uses more memory than it may."""
        self._pods[uid].send(signal.SIGKILL)

    def agents(self, uid: str) -> list[int]:
        """The task manager processes of a pod."""
        found = psutil.Process(self._pods[uid].process.pid).children(recursive=True)
        return [each.pid for each in found if "emberkeep.daemons.taskmanager" in each.cmdline()]

    def _run(self) -> None:
        while not self._ends.wait(_POLL):
            # The API server may be away, or have another version of the pod by now: the next round sees that.
            with contextlib.suppress(client.ApiException, HTTPError):
                if not self.is_lost:
                    self._look()

    def _look(self) -> None:
        answer = self._core.list_pod_for_all_namespaces(
            field_selector=f"spec.nodeName={self._node}", _preload_content=False, _request_timeout=_TIMEOUT
        )
        pods = msgspec.json.decode(answer.data)["items"]
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._forget(uid)  # it was deleted without a grace period
        for pod in pods:
            self._tend(pod)

    def _tend(self, pod: dict[str, Any]) -> None:
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        running = self._pods.get(uid)
        if running is None:
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in metadata:
                self._pods[uid] = self._started(pod)
                self._report(pod, "Running", {"running": {}})
                return
        elif (code := running.process.poll()) is None:
            if "deletionTimestamp" in metadata:
                self._end(running, metadata.get("deletionGracePeriodSeconds") or 0)
            return
        elif pod["status"]["phase"] == "Running":
            reason = "Completed" if code == 0 else "Error"
            self._report(
                pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": abs(code), "reason": reason}}
            )
        if "deletionTimestamp" in metadata:
            # An answer is not read: typed objects of a newer client refuse what an older server omits.
            self._core.delete_namespaced_pod(
                metadata["name"],
                metadata["namespace"],
                body={**_END_OF, "preconditions": {"uid": uid}},
                _preload_content=False,
            )

    def _started(self, pod: dict[str, Any]) -> _Running:
        spec = pod["spec"]
        container = spec["containers"][0]
        directory = self._directory / pod["metadata"]["uid"]
        volume = directory / "volume"
        volume.mkdir(parents=True)
        fields = {"spec.nodeName": self._node, "status.podIP": self._address}
        own = {each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
        (mount,) = [each for each in container["volumeMounts"] if each["name"] == "emberkeep-work"]
        with (directory / "container.out").open("ab") as out:
            process = subprocess.Popen(
                [*_UNSHARE, "sh", "-ec", _CONTAINER, "sh", mount["mountPath"], str(volume), *container["command"]],
                env={**self._environment, **own},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return _Running(process, directory)

    def _end(self, running: _Running, grace: int) -> None:
        if running.ordered is None:
            running.ordered = time.monotonic()
            running.send(signal.SIGTERM)
        if time.monotonic() - running.ordered >= grace:
            running.send(signal.SIGKILL)

    def _report(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        container = {"name": "taskmanager", "state": state, "ready": phase == "Running", "restartCount": 0}
        container.update(image="", imageID="")
        status = {"phase": phase, "podIP": self._address, "containerStatuses": [container]}
        metadata = pod["metadata"]
        self._core.patch_namespaced_pod_status(
            metadata["name"],
            metadata["namespace"],
            {"metadata": {"uid": metadata["uid"]}, "status": status},
            _preload_content=False,
        )

    def _forget(self, uid: str) -> None:
        running = self._pods.pop(uid)
        running.send(signal.SIGKILL)
        running.process.wait()
        shutil.rmtree(running.directory / "volume", ignore_errors=True)
