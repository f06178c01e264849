"""A real API server and scheduler of Kubernetes on this machine, with etcd, and nodes that are the tests' own.

All of it is in a network namespace of the test's own. The JobManager uses the rights that docs/kubernetes.md gives it.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from kubernetes import client, config, utils
from urllib3.exceptions import HTTPError

from tests.integration.conditions import until, wait_until_stopped
from tests.integration.kubernetes.stand_in_kubelet import StandInKubelet
from tests.integration.slurm.real_slurm import ADDRESS, own_network, why_no_network

NODES = {"node-1": "10.250.0.11", "node-2": "10.250.0.12"}
NAMESPACE = "spark"
_PROGRAMS = Path(sys.prefix) / "kubernetes"  # by tools/ensure-kubernetes.sh
_PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
SERVICE = ("127.0.0.1", "6443")  # host and port of the API server
_SERVER = f"https://{':'.join(SERVICE)}"
_TIMEOUT = 5.0
_ACCOUNT = "emberkeep"  # of the JobManager
# The API server notes what the JobManager asks for, and nothing else.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [f"system:serviceaccount:{NAMESPACE}:{_ACCOUNT}"]},
        {"level": "None"},
    ],
}


def why_impossible() -> str:
    """Why this machine cannot run it; "" if it can."""
    if not (_PROGRAMS / "kube-apiserver").exists():
        return "there is no API server of Kubernetes: run `make kubernetes`"
    return why_no_network()


def manifests_of_the_page() -> list[dict[str, Any]]:
    """The objects with which docs/kubernetes.md gives the JobManager its rights."""
    blocks = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "kind: ServiceAccount" in block]
    return list(yaml.safe_load_all(block))


class RealKubernetes:
    """``start`` first; ``close`` ends all of it.

    ``config_file``: the JobManager's credentials. ``service_account``: the same as the files that its pod would have.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], cpus: int = 1) -> None:
        """``environment``: of the pods' processes. ``cpus``: of each node."""
        directory.mkdir(parents=True)
        self.config_file = directory / "jobmanager.kubeconfig"
        self.service_account = directory / "serviceaccount"
        self.kubelets: dict[str, StandInKubelet] = {}
        self.core: Any = None  # a CoreV1Api, which takes plain JSON too, though its types deny that
        self._audit = directory / "audit.log"
        self._directory = directory
        self._environment = environment
        self._cpus = cpus
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        key, tokens, certificates = (self._directory / name for name in ("accounts.key", "tokens.csv", "certificates"))
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens.write_text("admin,admin,admin,system:masters\n")
        etcd = "http://127.0.0.1:2379"
        where = (f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", "--unsafe-no-fsync")
        self._run("etcd", f"--data-dir={self._directory / 'etcd'}", *where)
        issuer = "--service-account-issuer=https://kubernetes.default.svc"
        keys = (issuer, f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}")
        # Nobody here makes the service account of a namespace, or sees that a node is ready.
        admission = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"
        access = ("--authorization-mode=RBAC", f"--token-auth-file={tokens}", admission, *keys)
        policy = self._directory / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        audit = (f"--audit-policy-file={policy}", f"--audit-log-path={self._audit}")
        address = ("--bind-address=127.0.0.1", "--secure-port=6443", f"--advertise-address={ADDRESS}")
        more = (f"--cert-dir={certificates}", "--service-cluster-ip-range=10.251.0.0/16")
        self._run("kube-apiserver", f"--etcd-servers={etcd}", *address, *access, *audit, *more)
        admin = self._directory / "admin.kubeconfig"
        certificate = certificates / "apiserver.crt"
        until(certificate.exists, self.story)
        self._write_config(admin, "admin", certificate)
        settings = client.Configuration()
        load: Any = config.load_kube_config  # untyped
        load(str(admin), client_configuration=settings)
        settings.retries = False
        api_client = client.ApiClient(settings)
        self.core = client.CoreV1Api(api_client)
        until(self._is_ready, self.story)
        self._run("kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false", "--port=0", "--secure-port=0")
        create: Any = utils.create_from_dict  # untyped
        for manifest in manifests_of_the_page():
            create(api_client, manifest)
        asked = {"spec": {"audiences": [], "expirationSeconds": 7200}}
        token = self.core.create_namespaced_service_account_token(_ACCOUNT, NAMESPACE, asked).status.token
        self._write_config(self.config_file, token, certificate)
        self.service_account.mkdir()  # as in a pod of the JobManager
        for file, text in (("token", token), ("ca.crt", certificate.read_text()), ("namespace", NAMESPACE)):
            (self.service_account / file).write_text(text)
        for name, host in NODES.items():
            subprocess.run(["ip", "addr", "add", f"{host}/24", "dev", "lo"], check=True)
            self._add_node(name, host)

    def _is_ready(self) -> bool:
        try:
            namespaces = self.core.list_namespace(_request_timeout=_TIMEOUT)
        except (client.ApiException, HTTPError):
            return False
        return any(each.metadata.name == "kube-system" for each in namespaces.items)

    def _add_node(self, name: str, host: str) -> None:
        self.core.create_node({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        room = {"cpu": str(self._cpus), "memory": "16Gi", "pods": "10"}
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        self.core.patch_node_status(name, {"status": status})
        self.kubelets[name] = StandInKubelet(self.core, name, host, self._directory / name, self._environment)
        self.kubelets[name].start()

    def freeze(self, program: str) -> None:
        """Let "kube-apiserver" or "kube-scheduler" do nothing until ``thaw``."""
        process = self._processes[program]
        process.send_signal(signal.SIGSTOP)
        wait_until_stopped(process.pid)

    def thaw(self, program: str) -> None:
        self._processes[program].send_signal(signal.SIGCONT)

    def asked(self, verb: str, resource: str = "pods") -> int:
        """How many requests of the JobManagers the API server has answered."""
        whole, _, _ = self._audit.read_bytes().rpartition(b"\n")
        entries = [msgspec.json.decode(line) for line in whole.splitlines()]
        return sum((each["verb"], each["objectRef"]["resource"]) == (verb, resource) for each in entries)

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods of task managers, by the number of the task manager."""
        answer = self.core.list_namespaced_pod(NAMESPACE, _preload_content=False, _request_timeout=_TIMEOUT)
        found: list[dict[str, Any]] = msgspec.json.decode(answer.data)["items"]
        return {f"tm-{each['metadata']['name'].rpartition('-tm-')[2]}": each for each in found}

    def settled(self) -> dict[str, str]:
        """The nodes of the running pods, once no pod is on its way in or out."""

        found: dict[str, dict[str, Any]] = {}

        def are_settled() -> bool:
            nonlocal found
            found = self.pods()
            ends = any("deletionTimestamp" in pod["metadata"] for pod in found.values())
            return not ends and all(pod["status"]["phase"] != "Pending" for pod in found.values())

        until(are_settled, self.story, seconds=60)
        running = {key: pod for key, pod in found.items() if pod["status"]["phase"] == "Running"}
        return {key: pod["spec"]["nodeName"] for key, pod in running.items()}

    def delete_pods(self) -> None:
        """Delete all pods at once, and wait until they are gone.

        The scheduler keeps the room of a pod for a minute that is deleted while it is about to get its node.
        """
        until(lambda: not any(map(_is_being_scheduled, self.pods().values())), self.story, seconds=60)
        for pod in self.pods().values():
            with contextlib.suppress(client.ApiException):
                self.core.delete_namespaced_pod(pod["metadata"]["name"], NAMESPACE, grace_period_seconds=0)
        until(lambda: not self.pods(), self.story, seconds=60)

    def story(self) -> str:
        logs = (path.read_text(errors="replace")[-1500:] for path in sorted(self._directory.glob("**/*.out")))
        pods = [(key, pod["metadata"].get("deletionTimestamp"), pod["status"]) for key, pod in self.pods().items()]
        return "\n".join((*logs, str(pods)))

    def close(self) -> None:
        for kubelet in self.kubelets.values():
            kubelet.close()
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def _run(self, program: str, *arguments: str) -> None:
        with (self._directory / f"{program}.out").open("ab") as out:
            self._processes[program] = subprocess.Popen(
                [str(_PROGRAMS / program), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def _write_config(self, path: Path, token: str, certificate: Path) -> None:
        cluster = {"server": _SERVER, "certificate-authority": str(certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "user"}}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(content))


def _is_being_scheduled(pod: dict[str, Any]) -> bool:
    """True if the scheduler has not decided about a pod yet, or its node has not reported the pod."""
    conditions = pod["status"].get("conditions", ())
    has_no_room = any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)
    return pod["status"]["phase"] == "Pending" and not has_no_room


@contextlib.contextmanager
def real_kubernetes(directory: Path, environment: Mapping[str, str], cpus: int = 1) -> Iterator[RealKubernetes]:
    """Run it in a network of its own."""
    with own_network():
        kubernetes = RealKubernetes(directory, environment, cpus)
        try:
            kubernetes.start()
            yield kubernetes
        finally:
            kubernetes.close()
