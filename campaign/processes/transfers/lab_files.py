"""Submitted with jobs of the histories: checks the files of the job in its driver, and asks for executors that do so.

The directory of the job has a file ``files``: names of the submitted files, with the SHA-256 of each.
"""

import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from emberkeep.daemons.driver.link import JobMasterThread
from emberkeep.daemons.records.driver_spec import DriverSpec, read_spec
from emberkeep.jobmaster.ports import Application
from emberkeep.jobs.model import ArtefactRole
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement
from emberkeep.spark.distribution import spark_version

EXECUTORS = 2  # so that two task managers fetch the files, beside that of the driver
_MEMORY_MB = 256


def take(place: Path, deed: Callable[..., None]) -> None:
    """Note for each file whether it is the submitted one, and ask for executors. ``place``: the job's directory."""
    for name, digest in json.loads((place / "files").read_text()).items():
        file = Path(__file__).parent / name  # the task manager puts all files into one directory
        deed("file", whole=file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest)
    spec = read_spec(Path(sys.orig_argv[-1]))
    job_master = next(each for each in gc.get_objects() if type(each) is JobMasterThread)
    job_master.application_started(_application(spec, place))


def _application(spec: DriverSpec, place: Path) -> Application:
    """Return what the JobMaster would be told of a SparkContext. A stub executor runs in place of Java."""
    runtime = RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version())
    return Application(
        app_id="lab",
        driver_url=f"lab://{spec.host}",
        requirement=SlotRequirement(
            count=EXECUTORS, profile=ResourceProfile(cores=1, memory_mb=_MEMORY_MB), runtime=runtime
        ),
        heap_mb=_MEMORY_MB,
        java_options=(),
        extra_class_path="",
        environ={"LAB_PLACE": str(place), "LAB_ATTEMPT": os.environ["EMBERKEEP_JOB_ATTEMPT"]},
        auth_secret="",
        python_path=(),
        artefacts=tuple(each for each in spec.graph.artefacts if each.role is not ArtefactRole.SCRIPT),
    )
