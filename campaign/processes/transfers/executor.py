"""An executor of the histories, without Spark: a program that task managers start in place of Java.

It looks for the files of its job in its directory, writes a line about each into the file ``seen`` in the directory of
the job, and waits for its end. Only Python's own modules are there.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

PLACE, ATTEMPT = "LAB_PLACE", "LAB_ATTEMPT"  # variables of its environment

place = Path(os.environ[PLACE])
executor = sys.argv[sys.argv.index("--executor-id") + 1]
log = os.open(place / "seen", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for name, digest in json.loads((place / "files").read_text()).items():
    try:
        whole = hashlib.sha256(Path(name).read_bytes()).hexdigest() == digest
    except OSError:
        whole = False
    line = {
        "attempt": int(os.environ[ATTEMPT]),
        "executor": executor,
        "pid": os.getpid(),
        "at": time.monotonic(),
        "name": name,
        "whole": whole,
    }
    os.write(log, json.dumps(line).encode() + b"\n")
while True:
    signal.pause()
