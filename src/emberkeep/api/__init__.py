"""What users import: in drivers, on executors, and in scripts that may also run without Emberkeep."""

from emberkeep.api.functions import RichFunction, WithGracefulShutdown
from emberkeep.api.job import Job, current_job
from emberkeep.api.registry import register
from emberkeep.api.rolling_file_sink import RollingFileSink

__all__ = ["Job", "RichFunction", "RollingFileSink", "WithGracefulShutdown", "current_job", "register"]
