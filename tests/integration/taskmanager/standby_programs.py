"""Small Python programs that stand for standby drivers: each speaks their protocol, and fails in a way of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from emberkeep.adapters.processes.start import StartRequest
from emberkeep.daemons.taskmanager.standby_starts import StandbyDriver, StandbyPlace
from emberkeep.slots.standbys.events import StandbyProfile
from emberkeep.spark.jvm.executor_command import ExecutorLaunch

PROGRAM = """
import os, resource, signal, socket, subprocess, sys, time
from emberkeep import __version__
from emberkeep.daemons.records.standby_messages import (
    Confirm, Import, Imported, Ready, Take, Taken, encode, receive
)

how = sys.argv[1]
channel = socket.socket(fileno=os.dup(0))
print("warms up", flush=True)

def run_out_of_memory():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    bytearray(1 << 34)

if how == "has no memory to warm":
    run_out_of_memory()
if how == "fails to warm":
    sys.exit(1)
if how == "never warm":
    time.sleep(3600)
if how == "has a child":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
channel.sendall(encode(Ready(release="0.0.1" if how == "of another release" else __version__)))
order = receive(channel)
if isinstance(order, Import):
    if how == "dies of an import":
        sys.exit(1)
    if how == "hangs in an import":
        time.sleep(3600)
    channel.sendall(encode(Imported(packages=1)))
    order = receive(channel)
if how == "dies" or not isinstance(order, Take):
    sys.exit(0)
if how == "runs out of memory":
    run_out_of_memory()
if how in {"hangs", "has a child"}:
    os.kill(os.getpid(), signal.SIGSTOP)
os.chdir(order.directory)
if how == "speaks nonsense":
    channel.sendall(b"nonsense\\n")
else:
    channel.sendall(encode(Taken()))
if isinstance(receive(channel), Confirm):
    print("began in", os.getcwd(), "with", *order.arguments, order.environ.get("JOB"), flush=True)
    if how == "ends at once":
        sys.exit(3)
    time.sleep(3600)
"""


class SmallStandby(StandbyDriver):
    """A standby of either kind, whose process is PROGRAM. ``how``: how the process behaves."""

    def __init__(self, place: StandbyPlace, profile: StandbyProfile, how: str) -> None:
        super().__init__(place, profile)
        self._small_place = place
        self._how = how

    def start_request(self) -> StartRequest:
        argv = (sys.executable, "-c", PROGRAM, self._how)
        return self._small_place.request(argv, self._small_place.environ, self._link.fileno())

    def why_unfit(self, request: StartRequest, launch: ExecutorLaunch | None) -> str:
        del request, launch
        return "it is as if it did not fit" if self._how == "does not fit" else ""


def small_place(name: str, directory: Path, environ: dict[str, str]) -> StandbyPlace:
    """Return a place for SmallStandby, which needs no Java."""
    return StandbyPlace(name, directory, "127.0.0.1", None, environ)  # type: ignore[arg-type]
