"""Options of the commands that submit jobs: spark-submit's, and those of the job itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from emberkeep.cli.parameters import JOB_GROUP, FromSavepoint, JobNamespace, Module, Secrets
from emberkeep.client.submission.spark_options import SparkOptions

SPARK_GROUP = Group("Spark (as with spark-submit)", sort_key=10)


def _spark(metavar: str, name: str | list[str] | None = None) -> Parameter:
    return Parameter(name=name, metavar=metavar, group=SPARK_GROUP)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """Options of spark-submit, with Spark's names and meanings."""

    conf: Annotated[tuple[str, ...], _spark("KEY=VALUE", ["--conf", "-c"])] = ()
    "Spark property; may be repeated."
    properties_file: Annotated[str | None, _spark("FILE")] = None
    "File with Spark properties. Default: spark-defaults.conf below $SPARK_CONF_DIR or $SPARK_HOME/conf."
    load_spark_defaults: Annotated[bool, _spark("")] = False
    "Read spark-defaults.conf even when --properties-file is given."
    name: Annotated[str | None, _spark("NAME")] = None
    "Name of the job. Default: the script's."
    py_files: Annotated[str | None, _spark("LIST")] = None
    ".zip, .egg and .py files to put on the Python path of driver and executors."
    files: Annotated[str | None, _spark("LIST")] = None
    "Files to put into the working directory of each executor; path#name renames."
    archives: Annotated[str | None, _spark("LIST")] = None
    "Archives to unpack into the working directory of each executor; archive.zip#directory names the directory."
    jars: Annotated[str | None, _spark("LIST")] = None
    "Jars to put on the class path of driver and executors."
    packages: Annotated[str | None, _spark("LIST")] = None
    "Maven coordinates of jars: group:artifact:version."
    exclude_packages: Annotated[str | None, _spark("LIST")] = None
    "group:artifact to leave out of what --packages brings."
    repositories: Annotated[str | None, _spark("LIST")] = None
    "Further repositories to look for --packages in."
    driver_memory: Annotated[str | None, _spark("MEM")] = None
    "Heap of the driver, such as 1g. Default: 1g."
    driver_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of the driver."
    driver_java_options: Annotated[str | None, _spark("OPTIONS")] = None
    "Options of the driver's JVM."
    driver_class_path: Annotated[str | None, _spark("PATH")] = None
    "Further entries of the driver's class path."
    driver_library_path: Annotated[str | None, _spark("PATH")] = None
    "Further entries of the driver's library path."
    executor_memory: Annotated[str | None, _spark("MEM")] = None
    "Heap of each executor, such as 2g. Default: 1g."
    executor_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of each executor. Default: 1."
    num_executors: Annotated[str | None, _spark("NUM")] = None
    "Executors of the job, one slot each. Default: 2."
    total_executor_cores: Annotated[str | None, _spark("NUM")] = None
    "Cores of all executors together, if --num-executors is not given."
    master: Annotated[str | None, _spark("URL")] = None
    "Ignored: the job runs on the Emberkeep cluster. emberkeep-spark-submit takes the address of a JobManager here."
    deploy_mode: Annotated[str | None, _spark("MODE")] = None
    "Ignored: the driver runs on a task manager. With emberkeep-spark-submit, cluster does not wait for the job's end."
    main_class: Annotated[str | None, _spark("NAME", "--class")] = None
    "Refused: Emberkeep runs PySpark scripts."
    supervise: Annotated[bool, _spark("")] = False
    "Ignored: lost drivers are restarted anyway, see restart-strategy.type."
    queue: Annotated[str | None, _spark("NAME")] = None
    "Ignored: jobs share the cluster's slots fairly."
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], group=SPARK_GROUP)] = False
    "Show what will be submitted."

    def options(self) -> SparkOptions:
        values = {name: getattr(self, name) for name in SparkOptions.__dataclass_fields__}
        return SparkOptions(**values)


Words = Annotated[str, Parameter(show=False)]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], group=JOB_GROUP)]
DEFAULT_SUBMIT = SubmitOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of the job itself: its module, savepoint, namespace and secrets."""

    module: Module = None
    from_savepoint: FromSavepoint = None
    namespace: JobNamespace = ""
    secret: Secrets = ()


DEFAULT_JOB = JobOptions()
