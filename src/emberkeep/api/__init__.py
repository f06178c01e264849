"""The API that users import: in drivers, on executors, and in scripts that may also run without Emberkeep."""

from emberkeep.api.executor_functions import ExecutorFunction, on_executor
from emberkeep.api.functions import RichFunction, WithGracefulShutdown
from emberkeep.api.job import Job, current_job
from emberkeep.api.registry import register
from emberkeep.api.rolling_file_sink import RollingFileSink

__all__ = [
    "ExecutorFunction",
    "Job",
    "RichFunction",
    "RollingFileSink",
    "WithGracefulShutdown",
    "current_job",
    "on_executor",
    "register",
]
