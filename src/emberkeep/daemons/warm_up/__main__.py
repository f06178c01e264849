"""The process that warms a standby JVM: ``python -P -m emberkeep.daemons.warm_up <directory> <kind> <state>``.

``kind``: driver or executor. ``state``: see ``StateWarmUp``. It is a process of its own so that nothing of the warm-up
stays in the Python process of the driver. It finds the JVM as PySpark does, by the variables PYSPARK_GATEWAY_PORT and
PYSPARK_GATEWAY_SECRET. Any failure ends it with an exit code other than 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from emberkeep.base.processes.priority import lower
from emberkeep.daemons.warm_up.state_gateway import serve_state
from emberkeep.spark.standby.warm_up import warm_jvm
from emberkeep.spark.standby.warming import FOR_DRIVER, StateWarmUp


def main() -> None:
    lower(os.getpid())
    directory, for_driver, state = Path(sys.argv[1]), sys.argv[2] == FOR_DRIVER, StateWarmUp(sys.argv[3])
    if state is StateWarmUp.NONE:
        warm_jvm(directory, None, for_driver=for_driver)
        return
    with serve_state(directory / "state", encrypts=state is StateWarmUp.ENCRYPTED) as access:
        warm_jvm(directory, access, for_driver=for_driver)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main()
