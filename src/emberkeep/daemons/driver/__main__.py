"""The driver process of one attempt: ``python -m emberkeep.daemons.driver <spec>``."""

from __future__ import annotations

import os
import sys

from emberkeep.adapters.logging_setup import close_logs
from emberkeep.daemons.driver.attempt import run_attempt

if __name__ == "__main__":
    code = run_attempt(sys.argv[1:])
    # The script's exit handlers have run and the outcome is handed over: end at once, even if threads still hang.
    close_logs()
    os._exit(code)
