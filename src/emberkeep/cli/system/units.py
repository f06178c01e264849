"""The text of the systemd units of a JobManager and a task manager.

The hardening is bounded by one promise: drivers and executors survive their task manager's process, and the next one
adopts them. What would end or change them is left out, and a comment in the unit says so.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Settings = Sequence[tuple[str, str]]


class Daemon(enum.Enum):
    """A daemon that runs as a service."""

    JOB_MANAGER = "jobmanager"
    TASK_MANAGER = "taskmanager"

    @property
    def unit(self) -> str:
        return f"emberkeep-{self.value}.service"


@dataclass(frozen=True)
class Service:
    """How the daemons of a machine run.

    ``executable``: the command ``emberkeep``. ``state``: the state directory. ``writable``: directories that the
    JobManager writes to besides that one: storage, BLOBs, savepoints. ``java_home``: "" to find Java on the path.
    """

    executable: str
    config: str
    user: str
    state: str
    writable: tuple[str, ...] = ()
    java_home: str = ""

    @property
    def job_manager_hardening(self) -> Settings:
        """The settings of the JobManager's unit, which must reach each of its paths, wherever that is."""
        paths = list(filter(None, (self.executable, self.config, self.state, *self.writable, self.java_home)))
        places = {*map(os.path.normpath, paths), *map(os.path.realpath, paths)}  # a link may lead to a home
        at_home = any(Path("/", place.lstrip("/")).is_relative_to(home) for place in places for home in _HOMES)
        return (*_JOB_MANAGER, ("ProtectHome", "read-only" if at_home else "yes"))


_BOTH: Settings = (
    ("LockPersonality", "yes"),
    ("NoNewPrivileges", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    # AF_NETLINK: Java and Python list the network's interfaces with it.
    ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX AF_NETLINK"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("SystemCallArchitectures", "native"),
    ("UMask", "0077"),
)
_JOB_MANAGER: Settings = (
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("PrivateDevices", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectSystem", "strict"),
    ("SystemCallErrorNumber", "EPERM"),
    ("SystemCallFilter", "@system-service"),
)
_HOMES = ("/home", "/root", "/run/user")  # what ProtectHome hides
_TASK_MANAGER: Settings = (
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    # Jobs write where their scripts say, so only the operating system itself is protected from them.
    ("ProtectSystem", "full"),
    ("SystemCallErrorNumber", "EPERM"),
    (
        "SystemCallFilter",
        "~@clock @cpu-emulation @module @mount @obsolete @raw-io @reboot @swap",
    ),
)

_WHY = {
    Daemon.JOB_MANAGER: """\
# Left out, with reasons:
#   PrivateTmp: files there would be gone when the service stops.
#   RemoveIPC: shared memory of drivers and executors would be gone, too, if the task manager is stopped at that moment.
#   MemoryDenyWriteExecute: the history of Spark UIs is served by a JVM, which compiles at run time.
""",
    Daemon.TASK_MANAGER: """\
# Left out, because drivers and executors outlive this service and the next one adopts them:
#   PrivateTmp: systemd removes that directory when the service stops, while they still use it.
#   RuntimeDirectory: likewise.
#   ProtectProc, ProcSubset, PrivatePIDs: the next task manager must find them in /proc.
#   ProtectControlGroups: see Delegate.
# Left out, because jobs are the users' code:
#   MemoryDenyWriteExecute: JVMs compile at run time.
#   PrivateDevices, ProtectHome: jobs use GPUs, and files of users.
""",
}


# The process that runs this is in a group .control below the service's own.
_RELEASE = (
    "/bin/sh -c 'own=/sys/fs/cgroup$$(sed -n s/^0:://p /proc/self/cgroup); own=$${own%%/.control}; "
    "for each in $$own/emberkeep-*/cgroup.subtree_control $$own/cgroup.subtree_control; do "
    '[ ! -w $$each ] || echo "-cpu -memory" >$$each; done\''
)


def unit_text(daemon: Daemon, service: Service) -> str:
    """Return the text of a daemon's unit."""
    title = "JobManager" if daemon is Daemon.JOB_MANAGER else "task manager"
    lines = [
        "# Written by `emberkeep system install`. Change it with `systemctl edit`, so that upgrades can replace it.",
        "",
        "[Unit]",
        f"Description=Emberkeep {title}",
        "Wants=network-online.target",
        "After=network-online.target remote-fs.target time-sync.target",
        "# A daemon that cannot start yet, because a mount or ZooKeeper is missing, is tried without an end.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"User={service.user}",
        f"Group={service.user}",
        f"ExecStart={service.executable} {daemon.value} --config {service.config}",
        f"Environment=HOME={service.state}",
        *([f"Environment=JAVA_HOME={service.java_home}"] if service.java_home else []),
        f"EnvironmentFile=-{_environment_file(service)}",
        f"WorkingDirectory={service.state}",
        "",
        "# Exit code 0: it was stopped, or ended permanently. Exit code 2: a setting is wrong.",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        "TimeoutStopSec=60",
        "",
        *_process_lines(daemon),
        "",
        "# Hardening",
        *_setting_lines(_BOTH),
        *_setting_lines(service.job_manager_hardening if daemon is Daemon.JOB_MANAGER else _TASK_MANAGER),
        f"ReadWritePaths={service.state}",
        # "-": the service starts while a mount is missing, and says so itself.
        *(f"ReadWritePaths=-{path}" for path in service.writable if daemon is Daemon.JOB_MANAGER),
        _WHY[daemon].rstrip("\n"),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _process_lines(daemon: Daemon) -> list[str]:
    lines = [
        "# A stop or restart ends the daemon only: what it has started goes on, and its next process takes it over.",
        "KillMode=process",
        "# If the kernel ends an executor for want of memory, its job replaces it; the others go on.",
        "OOMPolicy=continue",
        "LimitNOFILE=65536",
    ]
    if daemon is Daemon.TASK_MANAGER:
        lines += [
            "TasksMax=infinity",
            "# The control group belongs to the task manager, which may limit processes there: taskmanager.cgroups.",
            "Delegate=cpu memory pids",
            "# With version 2 of control groups, systemd could not start the service beside processes that go on in",
            "# groups with limits. The next task manager enables these controllers again.",
            f"ExecStopPost=-{_RELEASE}",
        ]
    return lines


def _setting_lines(settings: Settings) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(settings)]


def _environment_file(service: Service) -> str:
    return f"{service.config.rpartition('/')[0]}/environment"
