"""How a driver or an executor is started: its command line, environment, directories and log files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from emberkeep.adapters.http.token_file import load_token
from emberkeep.adapters.processes.start import StartRequest
from emberkeep.base.configuration.layout import StateLayout, TlsFiles, WorkingDirectory
from emberkeep.base.configuration.values import REGISTRY, Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.files.hostile import hand_over
from emberkeep.base.files.private import make_private
from emberkeep.base.identity import AttemptScope
from emberkeep.base.import_path import RefusedFolder, why_unsafe, with_safe_path
from emberkeep.base.processes.os_user import OsUser
from emberkeep.daemons.leader_following import is_highly_available
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, DriverSpec, write_spec
from emberkeep.daemons.taskmanager.attempt_files import write_attempt_files
from emberkeep.daemons.taskmanager.job_environment import inherited_environment
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces, process_name
from emberkeep.daemons.taskmanager.run_as import JobUsers, entered, give_storage
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.jobs.model import ArtefactRole, JobGraph
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.messages.task_managers import StartDriver
from emberkeep.slots.standbys.events import StandbyKind
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.class_archive import default_directory, find_class_archive
from emberkeep.spark.jvm.executor_command import ExecutorLaunch, executor_command
from emberkeep.spark.jvm.resources import resources_json
from emberkeep.taskmanager.libraries.cache import BoundFile
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessEnvironment, ProcessKey

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LaunchNode:
    """The node on which the launcher starts processes, and the launcher's task manager."""

    task_manager: str
    host: str  # where other processes reach it
    directory: WorkingDirectory
    token_file: Path
    java: JavaRuntime
    configuration: Configuration
    tls: TlsFiles | None = None  # of the node; None: the cluster does not encrypt
    users: JobUsers = field(default_factory=lambda: JobUsers({}, ""))
    bind_host: str = ""  # the address that its processes bind; empty: ``host``
    storage: StateLayout | None = None  # the shared storage, opened to ``users`` before their drivers start

    @property
    def bound(self) -> str:
        return self.bind_host or self.host


class ProcessStarts:
    """Prepares the starts of processes on one node. ``environment`` adds variables to each; None adds none."""

    def __init__(self, node: LaunchNode, places: ProcessPlaces, environment: ProcessEnvironment | None) -> None:
        self._node = node
        self._places = places
        self._environment = environment

    def added_environment(self, key: ProcessKey, user: OsUser | None) -> dict[str, str]:
        """Return the variables that ``environment`` adds to the process with this key, which runs as ``user``."""
        if self._environment is None:
            return {}
        allocation_id = key.allocation_id if isinstance(key, ExecutorKey) else DRIVER
        caller = Caller(
            job_id=key.job_id,
            attempt=key.attempt,
            allocation_id=allocation_id,
            user_id=None if user is None else user.uid,
        )
        return self._environment.environ(caller)

    def standby_environment(self, kind: StandbyKind, directory: Path) -> dict[str, str]:
        """Return the environment of a standby process: what the processes of all jobs have in common."""
        if kind is StandbyKind.DRIVER:
            return _environment(self._node.configuration, self._driver_environment(directory), base=None)
        own = {
            "SPARK_HOME": str(spark_home(os.environ)),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_LOCAL_IP": self._node.bound,
            "TMPDIR": str(directory / "tmp"),
        }
        return _environment(self._node.configuration, own, base=None)

    def driver(
        self, key: DriverKey, request: StartDriver, files: tuple[BoundFile, ...], user: OsUser | None = None
    ) -> StartRequest:
        """Prepare the directory of a driver that runs as ``user``, with the spec that it reads at its start.

        Raises Fatal.
        """
        directory = self._places.directory(key)
        try:
            spec_file = self._write_spec(request, directory, files)
            if user is not None:
                give_storage(request, self._node.host, self._node.storage, user)
            enter, current = entered(_working_directory(request, user) or directory, user, directory)
        except (OSError, ValueError) as error:
            raise _unprepared("driver", error) from error
        return self._request(
            key,
            (*enter, sys.executable, "-P", "-m", "emberkeep.daemons.driver", str(spec_file)),
            _environment(
                self._node.configuration,
                {
                    **self._secrets(key, request.graph.secrets),
                    **self._driver_environment(directory),
                    **self.added_environment(key, user),
                },
                base=None,
                user=user,
            ),
            directory,
            user,
            None if current == directory else current,
        )

    def executor(
        self, key: ExecutorKey, request: StartExecutor, files: tuple[BoundFile, ...], user: OsUser | None = None
    ) -> tuple[StartRequest, ExecutorLaunch]:
        """Prepare the directory of an executor that runs as ``user``; return its start, and the inputs of its command.

        Raises Fatal.
        """
        try:
            launch = self._executor_launch(key, request, files, user)
            argv, environ = executor_command(launch)
        except (OSError, ValueError) as error:
            raise _unprepared("executor", error) from error
        return self._request(key, tuple(argv), environ, launch.work_dir, user), launch

    def _request(
        self,
        key: ProcessKey,
        argv: tuple[str, ...],
        environ: dict[str, str],
        directory: Path,
        user: OsUser | None,
        enter: Path | None = None,
    ) -> StartRequest:
        log_stem = self._places.log_stem(key)
        try:
            make_private(log_stem.parent)
        except OSError as error:
            raise Fatal(f"cannot create {error.filename} for logs: {error.strerror}") from error
        if user is not None:
            try:
                hand_over(self._places.directory(key), user)
            except OSError as error:
                raise Fatal(f"cannot hand {error.filename} to {user.name}: {error.strerror}") from error
        return StartRequest(
            name=process_name(key),
            argv=argv,
            environ=environ,
            directory=directory,
            stdout=log_stem.with_name(f"{log_stem.name}.stdout"),
            stderr=self._places.stderr(key),
            user=user,
            enter=enter,
        )

    def _write_spec(self, request: StartDriver, directory: Path, files: tuple[BoundFile, ...]) -> Path:
        node, graph = self._node, request.graph
        logs = node.directory.attempt_logs(graph.job_id, request.attempt)
        for path in (directory / "scratch", logs):
            make_private(path)
        (directory / OUTCOME_FILE).unlink(missing_ok=True)
        token_file, tls = self._credentials(AttemptScope(graph.job_id, request.attempt), directory)
        spec = DriverSpec(
            graph=graph,
            attempt=request.attempt,
            host=node.host,
            bind_host=node.bound,
            task_manager=node.task_manager,
            agent=str(node.directory.agent_record),
            leader=str(node.directory.leader_record) if is_highly_available(node.configuration) else "",
            job_manager=request.job_manager,
            token_file=str(token_file),
            tls=tls,
            checkpoint_root=f"{request.checkpoint_root}/{graph.job_id}",
            directory=str(directory),
            logs=str(logs),
            files=files,
            options=_without_secrets(node.configuration),
            checkpoints_recorded=request.checkpoints_recorded,
            checkpoints=request.checkpoints,
            procedure=request.procedure,
            lineage=request.lineage,
            epoch=request.epoch,
            namespace_claim=self._namespace_claim(graph),
            resources_file=_write_resources(directory, request),
        )
        write_spec(directory / "spec.record", spec)
        return directory / "spec.record"

    def _namespace_claim(self, graph: JobGraph) -> str:
        if self._node.tls is None:
            return ""  # nobody runs processes as other users then
        return AttemptCredentials(load_token(self._node.token_file)).namespace_claim(graph.job_id, graph.namespace)

    def _credentials(self, scope: AttemptScope, directory: Path) -> tuple[Path, TlsFiles | None]:
        """Return the token's file and the TLS files for the driver of an attempt.

        Without encryption, anyone on the network could read a driver's own token as well as the cluster's. So drivers
        use the cluster's there, which JobManagers of release 0.1.0 know.
        """
        node = self._node
        if node.tls is None:
            return node.token_file, None
        return write_attempt_files(directory, scope, AttemptCredentials(load_token(node.token_file)), node.tls)

    def _driver_environment(self, directory: Path) -> dict[str, str]:
        scratch = directory / "scratch"
        return {
            # the hashes of the driver and its workers must agree
            "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
            "PYTHONUNBUFFERED": "1",  # the script's output appears at once, not when a buffer is full
            "JAVA_HOME": str(self._node.java.home) if self._node.java.home else os.environ.get("JAVA_HOME", ""),
            "SPARK_LOCAL_IP": self._node.bound,
            "SPARK_LOCAL_DIRS": str(scratch / "local"),
        }

    def _secrets(self, key: ProcessKey, sealed: Mapping[str, str]) -> dict[str, str]:
        """Return the job's secrets as variables. Raises Fatal."""
        return JobSecrets(load_token(self._node.token_file), os.urandom).open(key.job_id, sealed) if sealed else {}

    def _executor_launch(
        self, key: ExecutorKey, request: StartExecutor, files: tuple[BoundFile, ...], user: OsUser | None
    ) -> ExecutorLaunch:
        directory = self._places.directory(key)
        work_dir = directory / "work"
        return ExecutorLaunch(
            driver_url=request.driver_url,
            executor_id=request.executor_id,
            host=self._node.host,
            bind_host=self._node.bound,
            cores=request.cores,
            heap_mb=request.heap_mb,
            app_id=request.app_id,
            java=self._node.java.executable,
            java_options=request.java_options,
            extra_class_path=request.extra_class_path,
            python=sys.executable,
            named_python=request.python,
            environ=_environment(
                self._node.configuration,
                {**self._secrets(key, request.secrets), **request.environ, **self.added_environment(key, user)},
                base=work_dir,
                first=_of_the_previous_release(request),
                user=user,
            ),
            work_dir=work_dir,
            local_dir=directory / "local",
            temporary_dir=directory / "tmp",
            auth_secret=request.auth_secret or None,
            import_folders=_import_folders(request),
            jars=tuple(Path(file.path) for file in files if file.role is ArtefactRole.JAR),
            jars_first=request.jars_first,
            resources={each.name: each.addresses for each in request.addresses},
            # This process's archive is in its home directory, which other users cannot read.
            class_archive=None
            if user is not None
            else find_class_archive(self._node.java, default_directory(os.environ), os.environ),
        )


def _unprepared(process: str, error: OSError | ValueError) -> Fatal:
    """Return the error for a directory that cannot be prepared. ValueError: a name that no file can have here."""
    why = f"{error.strerror} ({error.filename})" if isinstance(error, OSError) else str(error)
    return Fatal(f"cannot prepare the {process}'s directory: {why}")


def _write_resources(directory: Path, request: StartDriver) -> str:
    """Write the file that gives Spark's driver its custom resources, and return its path; "" if it has none."""
    if not request.addresses:
        return ""
    path = directory / "resources.json"
    addresses = {each.name: each.addresses for each in request.addresses}
    path.write_text(resources_json("spark.driver", addresses), "utf-8")
    return str(path)


def _working_directory(request: StartDriver, user: OsUser | None) -> Path | None:
    """Return the directory from which the job was submitted, if it exists here and may be entered. Raises OSError.

    Whether ``user`` may enter it, ``entered`` finds out: on a network file system, root has fewer rights.
    """
    if not request.graph.working_directory:
        return None
    wanted = Path(request.graph.working_directory)
    try:
        is_there = wanted.is_dir()
    except PermissionError:
        is_there = user is not None
    if not is_there or (user is None and not os.access(wanted, os.X_OK, effective_ids=True)):
        return None
    return wanted


def _environment(
    configuration: Configuration,
    added: Mapping[str, str],
    *,
    base: Path | None,
    first: Iterable[str] = (),
    user: OsUser | None = None,
) -> dict[str, str]:
    """Return the environment of a job's process: what it inherits, and ``added``, with a safe ``PYTHONPATH``.

    ``base`` and ``first``: see ``with_safe_path``. ``user``: the user whom the process runs as. With a user, variables
    that name places of this process's own user are left out.
    """
    inherited = inherited_environment(os.environ, configuration)
    if user is not None:
        personal = {name for name in inherited if name.startswith("XDG_") or name == "TMPDIR"}
        inherited = {name: value for name, value in inherited.items() if name not in personal} | user.environ()
    environ, refused = with_safe_path({**inherited, **added}, base, first)
    for folder in refused:
        _warn(folder)
    return environ


def _without_secrets(configuration: Configuration) -> dict[str, str]:
    """Return a driver's settings, without secrets: a driver reaches ZooKeeper only through its task manager."""
    return {key: text for key, text in configuration.texts().items() if not REGISTRY[key].secret}


def _import_folders(request: StartExecutor) -> tuple[str | None, ...]:
    """Return the folders that the driver named, with None for those that must not be used on this node."""
    if request.python_path_owner is None:
        return ()
    owners = {request.python_path_owner}
    reasons = {folder: why_unsafe(folder, owners) for folder in request.python_path}
    for folder, reason in reasons.items():
        if reason:
            _warn(RefusedFolder(folder, reason))
    return tuple(None if reasons[folder] else folder for folder in request.python_path)


def _of_the_previous_release(request: StartExecutor) -> tuple[str, ...]:
    """Return the folders for ``PYTHONPATH`` if the driver is from the previous release, else none.

    Such a driver gives its workers no links to the folders.
    """
    if request.python_path_owner is not None:
        return ()
    return tuple(folder for folder in request.python_path if not why_unsafe(folder))


def _warn(folder: RefusedFolder) -> None:
    log.warning("a folder that other users can write is not used for imports", folder=folder.folder, why=folder.reason)
