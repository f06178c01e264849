"""The daemon of an executor's Python workers, for applications whose local files are encrypted.

Spark encrypts what its JVMs spill, and leaves what Python workers spill as it is. The workers are forked from the
daemon, so what is changed here before the first fork holds in each.
"""

from __future__ import annotations

from emberkeep.spark.executors.python_daemon import main

MODULE = "emberkeep.spark.executors.encrypting_python_daemon"


def run() -> None:
    """Serve until standard input ends, with workers that encrypt what they spill."""
    from pyspark.daemon import manager

    from emberkeep.spark.executors.encrypted_spills import encrypt_spills

    encrypt_spills()
    manager()


if __name__ == "__main__" and not main(MODULE):
    run()
