"""A state gateway in a process of its own, to be killed; and a JVM with Hadoop's client that talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from py4j.java_gateway import GatewayParameters, JavaGateway

from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from emberkeep.local_state.credential import credential
from emberkeep.local_state.model import Caller
from emberkeep.local_state.ports import DurableState
from emberkeep.spark.distribution import class_path
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.state_gateway_conf import (
    CREDENTIAL_VARIABLE,
    GATEWAY_VARIABLE,
    TRUST_VARIABLE,
    HadoopSite,
    gateway_settings,
    process_environment,
)
from tests.integration.conditions import until
from tests.integration.state.hanging_mounts import HangingMounts
from tests.support.state_faults import FaultyState
from tests.support.state_slots import SLOT, begin_slot, own_states
from tests.support.working_places import working_place

JOB = JobId("0123456789abcdef" * 2)
ResultT = TypeVar("ResultT")


def configuration(directory: Path) -> Configuration:
    texts = {"state.backend.local-recovery": "true", "emberkeep.state-dir": str(directory)}
    return Configuration().with_texts(texts, "the test")


class _NotedState(FaultyState):
    """A durable store whose calls each add a line "method name" to the file ``notes``."""

    def __init__(self, store: DurableState, notes: Path) -> None:
        super().__init__(store)
        self._notes = notes

    def _call(self, method: str, name: str, work: Callable[[], ResultT]) -> ResultT:
        with self._notes.open("a") as notes:
            notes.write(f"{method} {name}\n")
        return work()


async def _serve(directory: Path, hanging: HangingMounts) -> None:
    services = Services()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, hanging.end)
    wanted = configuration(directory)
    layout = StateLayout(directory, wanted)
    place = working_place(directory / "tm")
    stores, notes = own_states(wanted, layout, place), directory / "store-calls"
    async with state_gateway_link(
        real_system(), wanted, place, layout, services, lambda *root: _NotedState(stores(*root), notes)
    ) as link:
        assert link is not None
        begin_slot(link, JOB, open_state_store(f"{layout.checkpoints}/{JOB}"), map(str, hanging.places))
        (directory / "address.new").write_text(link.port.address)
        (directory / "address.new").rename(directory / "address")
        await services.run_until(asyncio.Event())


@dataclass
class GatewayProcess:
    """``directory``: holds everything of it, the durable storage too.

    ``hanging``: directories that the job's driver uses as well, and that no process answers for.
    """

    directory: Path
    hanging: tuple[Path, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Returns its address."""
        (self.directory / "address").unlink(missing_ok=True)
        places = map(str, (self.directory, *self.hanging))
        command = [sys.executable, "-m", "tests.integration.gateway_process", *places]
        with (self.directory / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return until(self._address, (self.directory / "gateway.log").read_text)

    def _address(self) -> str | None:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "gateway.log").read_text()
        file = self.directory / "address"
        return file.read_text() if file.exists() else None

    def end_hanging(self) -> None:
        """Let the directories of ``hanging`` answer again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def credential(self, attempt: int, allocation_id: AllocationId = SLOT) -> str:
        secret = (self.directory / "tm" / "gateway" / "secret").read_bytes().strip()
        return credential(secret, Caller(job_id=JOB, attempt=attempt, allocation_id=allocation_id))

    @property
    def trust(self) -> Path:
        """The truststore with its certificate."""
        return self.directory / "tm" / "state-trust.p12"

    def store_calls(self) -> list[str]:
        """Return the calls to durable stores so far, each as "method name"."""
        return (self.directory / "store-calls").read_text().splitlines()

    @property
    def own_root(self) -> Path:
        """Where the durable files of the job lie."""
        return StateLayout(self.directory, configuration(self.directory)).checkpoints / JOB

    @contextlib.contextmanager
    def client(self) -> Iterator[HadoopClient]:
        """An executor of attempt 1."""
        address = (self.directory / "address").read_text()
        client = HadoopClient(address, self.credential(1), self.directory / "client", self.trust)
        try:
            yield client
        finally:
            client.close()


@dataclass
class HadoopClient:
    """A JVM without Spark. ``trust``: the gateway's truststore. ``uri``: of the job's own root."""

    address: str
    credential: str
    scratch: Path
    trust: Path
    uri: str = f"swebhdfs://localhost/{JOB}/own"
    java: Any = field(init=False)

    def __post_init__(self) -> None:
        self.scratch.mkdir(exist_ok=True)
        environ = process_environment(
            {
                **os.environ,
                GATEWAY_VARIABLE: self.address,
                CREDENTIAL_VARIABLE: self.credential,
                TRUST_VARIABLE: str(self.trust),
            }
        )
        command = [
            *(str(find_java(os.environ).executable), "-Xmx256m", f"-Djava.io.tmpdir={self.scratch}"),
            *("-XX:-UsePerfData", "-cp", class_path(environ), "py4j.GatewayServer", "--die-on-broken-pipe", "0"),
        ]
        with (self.scratch / "jvm.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self.conf = self.java.jvm.org.apache.hadoop.conf.Configuration()
        for key, value in gateway_settings({}, HadoopSite(), encrypts=True).items():
            self.conf.set(key.removeprefix("spark.hadoop."), value)
        self.fs = self.java.jvm.org.apache.hadoop.fs.Path(self.uri).getFileSystem(self.conf)
        self.context = self.java.jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self.java.jvm.java.net.URI.create(self.uri), self.conf
        )

    def path(self, name: str = "") -> Any:
        return self.java.jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{name}" if name else self.uri)

    def local(self, file: Path) -> Any:
        return self.java.jvm.org.apache.hadoop.fs.Path(f"file://{file}")

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        out = self.fs.create(self.path(name), overwrite)
        try:
            out.write(bytearray(data))
        finally:
            out.close()

    def read(self, name: str) -> bytes:
        """Small files only: the bytes travel through py4j."""
        stream = self.fs.open(self.path(name))
        try:
            return bytes(self.java.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """As Spark does, by FileContext."""
        kinds = self.java.jvm.org.apache.hadoop.fs.Options.Rename
        options = self.java.new_array(kinds, 1)
        options[0] = kinds.OVERWRITE if overwrite else kinds.NONE
        self.context.rename(self.path(source), self.path(target), options)

    def close(self) -> None:
        self.java.shutdown()  # else Python tells the JVM of each object that it collects later, whenever that is
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main, *places = map(Path, sys.argv[1:])
    asyncio.run(_serve(main, HangingMounts(places)))
