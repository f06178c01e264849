"""The job of the histories, without Spark. It runs as a script of an attempt's driver, and its deeds are what counts.

Arguments: a directory, the number of entries to commit, seconds between two, the name and SHA-256 of a file that was
submitted with the job. If the directory has a file ``files``, ``transfers.lab_files`` looks for these too. Each deed is
a line in the file ``deeds``, with the time by the clock that all processes of this machine share.

An entry is committed as a streaming query commits its batches: the attempt's lease is asked first, then a file is
created that must not exist. The numbers continue where the attempts before have ended.
"""

import gc
import hashlib
import importlib
import json
import os
import sys
import time
from pathlib import Path

from emberkeep.jobmaster.lease import AttemptLease

place, total, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
name, digest = sys.argv[4:6]
attempt = int(os.environ["EMBERKEEP_JOB_ATTEMPT"])
entries = place / "entries"
log = os.open(place / "deeds", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def deed(what: str, **details: object) -> None:
    line = {"attempt": attempt, "pid": os.getpid(), "what": what, "at": time.monotonic(), **details}
    os.write(log, json.dumps(line).encode() + b"\n")


def find(file: str) -> str:
    """Return the SHA-256 of a file that the job was submitted with; "" if it is not here."""
    for folder in (Path.cwd(), *map(Path, sys.path), Path(__file__).parent):
        if (folder / file).is_file():
            return hashlib.sha256((folder / file).read_bytes()).hexdigest()
    return ""


deed("began")
entries.mkdir(exist_ok=True)
deed("file", whole=find(name) == digest)
if (place / "files").exists():
    importlib.import_module("lab_files").take(place, deed)
(lease,) = (each for each in gc.get_objects() if type(each) is AttemptLease)  # its JobMaster's own
number = max((int(each.name) for each in entries.iterdir()), default=0)
while number < total:
    deed("tick")
    number += 1
    asked = time.monotonic()
    lease.wait()
    try:
        os.close(os.open(entries / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        deed("overtaken", number=number)
        sys.exit(3)
    deed("commit", number=number, asked=asked)
    time.sleep(pause)
deed("ended")
