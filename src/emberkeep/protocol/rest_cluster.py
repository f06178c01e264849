"""REST bodies about the cluster as a whole."""

from __future__ import annotations

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest import Duration, Kebab, Millis


class TaskManagerOfAnotherStore(Kebab, frozen=True, kw_only=True):
    """A task manager that this cluster does not use, because it works for JobManagers with the job store ``store``.

    ``path``: its address.
    """

    id: TaskManagerId
    path: str
    node_id: str
    pid: int
    store: str


class ClusterExtension(Kebab, frozen=True, kw_only=True):
    version: str
    epoch: int
    job_manager: str  # host:port
    started: Millis
    jobs_by_status: dict[JobStatus, int]
    driver_places_total: int
    driver_places_available: int
    taskmanagers_away: int  # silent ones; counted in ``taskmanagers`` too
    taskmanagers_of_another_store: tuple[TaskManagerOfAnotherStore, ...] = ()  # not counted in ``taskmanagers``
    problem: str = ""  # what the JobManager cannot do now, and what to do about it; the same as in its readiness
    blocklist_problem: str = ""  # why the blocked nodes are unknown; nothing new is placed until they are known
    storage_problem: str = ""  # why nothing is deleted in the shared storage; empty if this cluster owns it
    storage_unneeded: int = 0  # pieces of data in the storage that no job needs
    encryption: str = "none"  # security.encryption: "none" or "tls"
    certificate_expires: Millis | None = None  # the JobManager's; null without encryption


class ClusterOverview(Kebab, frozen=True, kw_only=True):
    """Counts of the whole cluster. ``flink-version`` is the version that Flink's tools show."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    emberkeep: ClusterExtension
    taskmanagers_blocked: int = 0
    slots_free_and_blocked: int = 0  # available slots on blocked task managers, where nothing new is placed


class Features(Kebab, frozen=True, kw_only=True):
    web_submit: bool
    web_cancel: bool


class DashboardConfiguration(Kebab, frozen=True, kw_only=True):
    refresh_interval: Duration
    timezone_name: str
    timezone_offset: int  # milliseconds
    flink_version: str
    flink_revision: str
    features: Features


class ConfigurationEntry(Kebab, frozen=True, kw_only=True):
    """One option. Secret values are shown as ``******``. ``origin``: default, a file, environment …, -D."""

    key: str
    value: str
    origin: str


class Probe(Kebab, frozen=True, kw_only=True):
    """Reply to a load balancer's probe: status 200 if the probe succeeds, else 503 with a problem."""

    status: str
    epoch: int
    problem: str = ""  # what cannot be done although the probe succeeds, such as decisions or storage reads
