"""The other job of the histories, whose entries go through its task manager's state gateway, as a query's state does.

Arguments: a directory, the number of entries to store, seconds between two. Each deed is a line in the file ``deeds``,
as ``campaign.processes.job`` writes them; no lease holds an entry back.

The driver's own gateway admits the attempt: once it has answered, no older attempt may store anything. An entry is
stored as Spark stores a file: under a temporary name first, which is then renamed to the entry's number, which must not
exist. While a file ``hold`` is in the directory, the job stands still between the two, and says so in the file
``held``, for a fault to strike there.

Once it is admitted, the attempt writes into the directory ``doors`` how it reaches the gateway of its task manager, for
``late_writer``. If the directory has a file ``files``, ``transfers.lab_files`` looks for these.
"""

import http.client
import importlib
import json
import os
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from emberkeep.api.job import current_job
from emberkeep.base.ids import JobId
from emberkeep.daemons.records.driver_spec import read_spec
from emberkeep.local_state.gateway_paths import gateway_uri
from emberkeep.spark.jvm.state_gateway_conf import CREDENTIAL_VARIABLE, GATEWAY_VARIABLE

ANSWER_SECONDS = 30.0  # longer than a gateway stands still
PATIENCE = 120.0  # seconds for each request, as Hadoop's client has it
PAUSE = 0.2  # seconds until a request is repeated
HELD_SECONDS = 2.0  # shorter than a stop that an attempt must notice

place, total, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
attempt = current_job().attempt
log = os.open(place / "deeds", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def deed(what: str, **details: object) -> None:
    line = {"attempt": attempt, "pid": os.getpid(), "what": what, "at": time.monotonic(), **details}
    os.write(log, json.dumps(line).encode() + b"\n")


class Refused(Exception):
    """The gateway refuses a request. The text is the Java exception that Spark would get."""


class BrokenOff(Exception):
    """An upload had no reply. Spark's task would begin again, with another temporary name."""


class Gateway:
    """A state gateway as Hadoop's client uses it: what may be repeated is repeated until it has a reply."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._root = gateway_uri("", JobId(current_job().job_id), str(place / "state"), "/none")

    def name(self, name: str) -> str:
        return f"{self._root}/{name}"

    def ask(self, method: str, name: str, parameters: Mapping[str, str]) -> Any:
        """Return the reply to a request that may be repeated."""
        query = urlencode({**parameters, "user.name": os.environ[CREDENTIAL_VARIABLE]})
        return self._repeated(method, f"/webhdfs/v1{quote(self.name(name))}?{query}")[1]

    def upload(self, name: str, content: bytes) -> None:
        """Store a file. Raises BrokenOff."""
        query = urlencode({"op": "CREATE", "overwrite": "false", "user.name": os.environ[CREDENTIAL_VARIABLE]})
        location, _ = self._repeated("PUT", f"/webhdfs/v1{quote(self.name(name))}?{query}")
        target = urlsplit(location)
        try:
            status, _, answer = self._send("PUT", f"{target.path}?{target.query}", content)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOff(str(error)) from error
        if status == 503:
            raise BrokenOff(answer.decode())
        _read(status, answer)

    def _repeated(self, method: str, path: str) -> tuple[str, Any]:
        """Return where a reply sends its client, and what it says."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                status, location, answer = self._send(method, path, b"")
                if status != 503:
                    return location, _read(status, answer)
            except (OSError, http.client.HTTPException):
                pass  # nobody knows whether it has had an effect; the gateway must
            if time.monotonic() > deadline:
                deed("lost contact")
                sys.exit(5)
            time.sleep(PAUSE)

    def _send(self, method: str, path: str, content: bytes) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, content)
            reply = connection.getresponse()
            return reply.status, reply.getheader("Location", ""), reply.read()
        finally:
            connection.close()


def _read(status: int, answer: bytes) -> Any:
    """Return the body of a good reply. Raises Refused."""
    body = json.loads(answer) if answer else {}
    if status >= 400:
        raise Refused(body["RemoteException"]["exception"])
    return body


def uploaded(gateway: Gateway, number: int) -> tuple[str, float]:
    """Store a temporary file of an entry. Return its name, and when the upload began."""
    while True:
        name, asked = f"entries/.{number}.{uuid.uuid4()}.tmp", time.monotonic()
        try:
            gateway.upload(name, json.dumps({"attempt": attempt, "number": number, "asked": asked}).encode())
        except BrokenOff:
            time.sleep(PAUSE)
        else:
            return name, asked


def stand_still() -> None:
    """Wait between two steps while a fault is about to strike there."""
    hold, held = place / "hold", place / "held"
    if hold.exists():
        held.write_text(str(os.getpid()))
        until = time.monotonic() + HELD_SECONDS
        while hold.exists() and time.monotonic() < until:
            time.sleep(0.002)
        held.unlink(missing_ok=True)


def first_value(variable: str) -> str:
    """Return what a variable was when this process was started: the driver names its own gateway in it since."""
    lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    return next(line.partition(b"=")[2].decode() for line in lines if line.startswith(f"{variable}=".encode()))


def show_door(gateway: Gateway, task_manager: str) -> None:
    """Let others ask a gateway in the name of this attempt."""
    door = {
        "job_id": current_job().job_id,
        "pid": os.getpid(),
        "task_manager": task_manager,
        "address": gateway.address,
        "credential": os.environ[CREDENTIAL_VARIABLE],
        "root": gateway.name(""),
    }
    doors = place / "doors"
    doors.mkdir(exist_ok=True)
    new = doors / f"{attempt}.new"
    new.write_text(json.dumps(door))
    new.rename(doors / str(attempt))


deed("began")
beside = Gateway(first_value(GATEWAY_VARIABLE))  # of the task manager, for the entries
own = Gateway(os.environ[GATEWAY_VARIABLE])
try:
    own.ask("PUT", "entries", {"op": "MKDIRS"})
    deed("admitted")
    show_door(beside, read_spec(Path(sys.orig_argv[-1])).task_manager)
    if (place / "files").exists():
        importlib.import_module("lab_files").take(place, deed)
    listing = own.ask("GET", "entries", {"op": "LISTSTATUS"})["FileStatuses"]["FileStatus"]
    number = max((int(each["pathSuffix"]) for each in listing if each["pathSuffix"].isdecimal()), default=0)
    while number < total:
        deed("tick")
        number += 1
        temporary, asked = uploaded(beside, number)
        stand_still()
        deed("renaming", number=number, asked=asked)
        target = beside.name(f"entries/{number}")
        beside.ask("PUT", temporary, {"op": "RENAME", "destination": target, "renameoptions": "NONE"})
        deed("stored", number=number, asked=asked)
        time.sleep(pause)
except Refused as error:
    deed("refused", why=str(error))
    sys.exit(3)
deed("ended")
