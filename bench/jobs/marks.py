"""A batch job of short tasks, until it is ended. Each task writes which Python daemon ran it, and when, to a file.

Argument: a directory. A daemon belongs to one executor, so a new one shows that a new executor takes tasks.
"""

import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

_PLACE = Path(sys.argv[1])


def mark(_: int) -> None:
    """Note this task in the file of its daemon."""
    with (_PLACE / str(os.getppid())).open("a") as file:
        file.write(f"{time.time():.3f}\n")
    time.sleep(0.1)


context = SparkSession.builder.appName("bench-marks").getOrCreate().sparkContext
while True:
    context.parallelize(range(200), 200).foreach(mark)
