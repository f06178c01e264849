"""Messages between JobManager and JobMasters."""

from __future__ import annotations

from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.jobs.progress.history import HistoryPage, Selection
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.lifecycle.model import ProcedureRequest
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.model import Reclaim


class RegisterJobMaster(Message, frozen=True, kw_only=True):
    """A driver's JobMaster is ready.

    Conflict: this attempt has been superseded or the job has ended, so the JobMaster must exit.

    ``in_doubt``: the JobMaster was stopped for a long time, and the reply decides whether it may commit. Therefore the
    JobManager first confirms that it is the leader.
    """

    job_id: JobId
    attempt: int
    address: str
    task_manager: TaskManagerId
    pid: int
    status: JobMasterStatus
    in_doubt: bool = False
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store


class JobMasterHeartbeat(Message, frozen=True, kw_only=True):
    """The status of an attempt.

    ``asks_confirmation``: the JobManager must find out whether it is certainly the leader, and say so in its reply.
    """

    job_id: JobId
    attempt: int
    status: JobMasterStatus
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store
    asks_confirmation: bool = False


class JobMasterReply(Message, frozen=True, kw_only=True):
    """Reply to RegisterJobMaster and JobMasterHeartbeat.

    - ``known`` False: register again.
    - ``lost``: instances of task managers that are gone.
    - ``missing``: what the cluster cannot provide now, in words; "" if all requirements are met.
    - ``missing_blocked``: the cluster could provide it if no node were blocked or had a full disk.
    - ``procedure``: what the job is asked to do, until the procedure's end is recorded.
    - ``procedure_recorded``: trigger id of the newest procedure whose end is recorded.
    - ``draining``: task managers that will stop once what they hold has moved elsewhere.
    - ``reclaim``: what the attempt is to give back for other jobs; None: nothing.
    - ``confirmed``: the JobManager is certainly the leader, and this is the job's current attempt.
    - ``lease``: seconds of silence after which the JobManager may start a newer attempt; 0: it does not say.
    - ``trace``: what the JobManager knows of the attempt's start and the status does not name. The JobMaster repeats it
      in its next statuses, so that the next leader learns it.
    """

    epoch: int
    known: bool
    heartbeat_interval: float
    lost: tuple[InstanceId, ...] = ()
    missing: str = ""
    missing_blocked: bool = False
    blocklist: Blocklist | None = None  # the whole list, unless the status already names its revision
    blocklist_lost: bool = False  # the JobManager cannot read its blocklist and asks the JobMaster for its copy
    procedure: ProcedureRequest | None = None
    procedure_recorded: str = ""
    draining: tuple[TaskManagerId, ...] = ()
    lineage: str = ""  # job store to which the epoch belongs
    trace: TraceReport | None = None
    reclaim: Reclaim | None = None
    confirmed: bool = False
    lease: float = 0.0


class ReportNow(Message, frozen=True, kw_only=True):
    """Send a heartbeat at once, because its reply says something new, such as a request to stop.

    Nothing depends on it: without it, the next regular heartbeat learns the same.
    """

    job_id: JobId
    attempt: int


class ReadSparkUi(Message, frozen=True, kw_only=True):
    """Read a page of the driver's Spark UI. ``path``: from "/" on, with its query.

    ``base``: the path below which the reader sees the UI, without "/" at its end, so that its links lead there.
    ``in_pieces``: the reader takes a page that is too large for one reply in pieces. ``more``: the page whose next
    piece to read, as an earlier reply names it; ``path`` and ``base`` then mean nothing. ``abandons``: nobody reads
    that page any longer; the reply then has no body.
    """

    job_id: JobId
    attempt: int
    path: str
    base: str = ""
    in_pieces: bool = False
    more: str = ""
    abandons: bool = False


class SparkUiRead(Message, frozen=True, kw_only=True):
    """A page as Spark returned it, or a piece of it.

    ``location``: the path that it redirects to; "" if it does not redirect. ``more``: names the page if further pieces
    follow.
    """

    status: int
    content_type: str
    location: str
    body: bytes
    more: str = ""


class ReadProgress(Message, frozen=True, kw_only=True):
    """Read the progress history of the job's streaming queries. Conflict: the JobMaster leads another attempt."""

    job_id: JobId
    attempt: int
    selection: Selection


class ProgressRead(Message, frozen=True, kw_only=True):
    page: HistoryPage


class ReportOutcome(Message, frozen=True, kw_only=True):
    """The script has ended and Spark is stopped; the process exits soon. The first report of an attempt counts."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome
    lineage: str = ""  # job store of the JobManagers that it follows
    known_epoch: int = 0  # the highest known epoch of that job store
