"""A host that consists of namespaces: with addresses, a name, processes and files of its own, as a machine has them.

A process on it sees the programs of this machine. Its own are `/mnt/local` (its disk, with a home directory and /tmp)
and `/etc`; `/mnt/shared` is a file system that all hosts mount. It sees no process and no disk of another host.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.commands import Ended, Running
from tests.integration.conditions import DEADLINE
from tests.integration.hosts.namespaces import Namespaces
from tests.integration.hosts.requirements import CHECKOUT, fake_clock

_KINDS = ("net", "uts", "mount", "pid", "ipc")
_INIT = Path(__file__).with_name("init.sh")
_INHERITED = ("JAVA_HOME", "LANG", "LC_ALL")
_PRIVATE = (Path("/tmp"), Path("/root"))  # of each host
_PROGRAMS = (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix))
_FILLER = "filler"
LOCAL, SHARED = Path("/mnt/local"), Path("/mnt/shared")


@dataclass(frozen=True)
class Link:
    """A host's interface at a switch."""

    segment: str
    interface: str
    port: str  # of the switch
    ipv4: str
    ipv6: str
    mac: str


class Host:
    """A host. ``disk`` is `/mnt/local` as seen from outside. Only ``Network`` boots and kills hosts."""

    def __init__(self, name: str, disk: Path, shared: Path, links: tuple[Link, ...], families: frozenset[int]) -> None:
        self.name = name
        self.disk = disk
        self.links = links
        self.environment: dict[str, str] = {}  # of all its commands
        self._families = families
        self._shared = shared
        self._namespaces: Namespaces | None = None
        self._users: dict[str, int] = {"root": 0}
        self._running: list[Running] = []
        (disk / "home" / "root").mkdir(parents=True)

    # --- the machine --------------------------------------------------------------------------------------------------

    def boot(self, boot_id: str) -> None:
        assert not self.is_up
        boot = self.disk / "boot-id"
        boot.write_text(f"{boot_id}\n")
        visible = {path for path in _PROGRAMS if any(path.is_relative_to(each) for each in _PRIVATE)}
        self._namespaces = Namespaces(
            _KINDS,
            ("bash", str(_INIT)),
            {
                "HOST_NAME": self.name,
                "HOST_DISK": str(self.disk),
                "HOST_SHARED": str(self._shared),
                "HOST_BOOT": str(boot),
                "HOST_VISIBLE": " ".join(str(path) for path in visible if not _is_below(path, visible)),
            },
        )
        for name in [name for name in self._users if name != "root"]:
            self._know_user(name)

    def set_up_links(self) -> None:
        self.namespaces.run("ip", "link", "set", "lo", "up")
        for link in self.links:
            self.namespaces.run("ip", "link", "set", link.interface, "up")
            for address in self.addresses(link):
                bits, more = ("64", ("nodad",)) if ":" in address else ("24", ())
                self.namespaces.run("ip", "address", "add", f"{address}/{bits}", "dev", link.interface, *more)

    def addresses(self, link: Link) -> list[str]:
        return [link.ipv4] * (4 in self._families) + [link.ipv6] * (6 in self._families)

    @property
    def address(self) -> str:
        """The first address of the first interface."""
        return self.addresses(self.links[0])[0]

    @property
    def namespaces(self) -> Namespaces:
        assert self._namespaces is not None, f"{self.name} is not up"
        return self._namespaces

    @property
    def is_up(self) -> bool:
        return self._namespaces is not None

    @property
    def pid(self) -> int:
        """Of its first process, as seen from outside."""
        return self.namespaces.pid

    def kill(self) -> None:
        """End all its processes at once. Idempotent."""
        if self._namespaces is not None:
            self._namespaces.kill()
            self._namespaces = None
        for running in self._running:
            running.process.wait(DEADLINE)  # it ends with the process that it has started in here

    def know_names(self, lines: Iterable[str]) -> None:
        """Replace the names in its /etc/hosts, apart from those of loopback addresses."""
        loopback = ("127.0.0.1 localhost", "::1 localhost")
        self.path("/etc/hosts").write_text("\n".join((*loopback, *lines)) + "\n")

    def shift_clock(self, seconds: int) -> None:
        """Let all commands that start from now on, and all that these start, see another time of day."""
        library = fake_clock()
        assert library is not None, "libfaketime is not installed: `make host-tools`"
        self.environment |= {
            "LD_PRELOAD": str(library),
            "FAKETIME": f"{seconds:+d}s",
            "FAKETIME_DONT_FAKE_MONOTONIC": "0",  # with 1, Python cannot sleep
            "NO_FAKE_STAT": "1",  # the times of files in the shared directory are those of its server
        }

    def mount_small_disk(self, path: str, megabytes: int, uid: int) -> None:
        """Mount an empty disk there, which belongs to that user."""
        self.path(path).mkdir()
        self.namespaces.run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,uid={uid},gid={uid}", "small", path)

    def fill_disk(self, path: str) -> None:
        """Leave no byte free on the disk that is mounted there."""
        self.namespaces.run("sh", "-c", f"cat /dev/zero >{path}/{_FILLER} || true")

    def free_disk(self, path: str) -> None:
        """Undo ``fill_disk``."""
        self.path(f"{path}/{_FILLER}").unlink()

    def forbid_shared_writes(self) -> None:
        """Let this host only read the shared directory. Files that are open for writing stay so."""
        self.namespaces.run("mount", "--bind", str(SHARED), str(SHARED))
        self.namespaces.run("mount", "-o", "remount,bind,ro", str(SHARED))

    def permit_shared_writes(self) -> None:
        """Undo ``forbid_shared_writes``."""
        self.namespaces.run("umount", "--lazy", str(SHARED))

    def serve_shared(self) -> None:
        """Put a server of this host's own before the shared directory, for which all that uses files there waits."""
        served = "/mnt/served"
        self.path(served).mkdir()
        self.namespaces.run("mount", "--bind", str(SHARED), served)
        self.done("bindfs", "-o", "nonempty,attr_timeout=0,entry_timeout=0", served, str(SHARED))

    @contextlib.contextmanager
    def hung_shared(self) -> Iterator[None]:
        """Let reads and writes in the shared directory wait until the end of the context, after ``serve_shared``."""
        self.namespaces.run("pkill", "-STOP", "-x", "bindfs")
        try:
            yield
        finally:
            self.namespaces.run("pkill", "-CONT", "-x", "bindfs")

    # --- its files and users ------------------------------------------------------------------------------------------

    def path(self, path: str | Path) -> Path:
        """Return a path of this host as one that can be opened from outside, while the host is up."""
        return self.namespaces.root / str(path).lstrip("/")

    def write(self, path: str | Path, text: str, mode: int = 0o644) -> None:
        place = self.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)

    def add_user(self, name: str, uid: int) -> None:
        """Make a user with a home directory, who is the same after the host was killed."""
        self._users[name] = uid
        home = self.disk / "home" / name
        home.mkdir()
        os.chown(home, uid, uid)
        self._know_user(name)

    def _know_user(self, name: str) -> None:
        uid = self._users[name]
        with self.path("/etc/passwd").open("a") as users:
            users.write(f"{name}:x:{uid}:{uid}::{LOCAL / 'home' / name}:/bin/sh\n")
        with self.path("/etc/group").open("a") as groups:
            groups.write(f"{name}:x:{uid}:\n")

    # --- its commands -------------------------------------------------------------------------------------------------

    def home(self, user: str = "root") -> Path:
        return LOCAL / "home" / user

    def start(self, *words: str, user: str = "root", environment: Mapping[str, str] | None = None) -> Running:
        """Start a command in its user's home directory. The output goes to files on the host's disk."""
        out, err = (self.disk / f"command-{len(self._running)}.{stream}" for stream in ("out", "err"))
        uid, home = str(self._users[user]), str(self.home(user))
        variables = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": home,
            "USER": user,
            **self.environment,
            **(environment or {}),
        }
        inside = ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "env", "-i", f"--chdir={home}")
        assignments = (f"{name}={value}" for name, value in variables.items())
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                self.namespaces.enter(*inside, *assignments, *words),
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                start_new_session=True,
            )
        self._running.append(Running(process, out, err))
        return self._running[-1]

    def run(self, *words: str, user: str = "root", seconds: float = DEADLINE) -> Ended:
        return self.start(*words, user=user).wait(seconds)

    def done(self, *words: str, user: str = "root") -> str:
        """Run a command that must succeed; return its output."""
        ended = self.run(*words, user=user)
        assert ended.code == 0, f"{self.name}: {' '.join(words)}: {ended}"
        return ended.out

    def reaches(self, address: str, port: int) -> bool:
        """True if a connection to that port can be opened from here within two seconds."""
        script = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()"
        return self.run("python", "-c", script, address, str(port)).code == 0


def _is_below(path: Path, others: Iterable[Path]) -> bool:
    return any(path != other and path.is_relative_to(other) for other in others)
