"""The daemon of an executor's Python workers, for applications whose local files are encrypted.

Spark encrypts what its JVMs spill, and leaves what Python workers spill as it is. The workers are forked from the
daemon, so what is changed here before the first fork holds in each.
"""

from __future__ import annotations

import sys

from emberkeep.spark.executors.python_daemon import without_archives

MODULE = "emberkeep.spark.executors.encrypting_python_daemon"


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    from pyspark.daemon import manager

    from emberkeep.spark.executors.encrypted_spills import encrypt_spills

    encrypt_spills()
    manager()
