"""The jobs of the histories: their scripts, arguments and files."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from campaign.processes.clients import SubmittedJob
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare
from emberkeep.client.submission.spark_options import SparkOptions

PAUSE = 0.1  # seconds between two entries of a job
_SCRIPT = Path(__file__).with_name("job.py")
_GATEWAY_SCRIPT = Path(__file__).parent / "gateways" / "job.py"
_LAB_FILES = Path(__file__).parent / "transfers" / "lab_files.py"
_SHARE_STORED = 0.5  # of the jobs: those whose entries go through state gateways
_SHARE_KEPT = 0.5  # of the jobs: those that no client cancels, so that attempts live through faults
_SHARE_WITH_DATA = 0.6  # of the jobs: those with a large file, which their executors get as well
_SHARE_REPEATED = 0.2  # of the large files: those that an earlier job has, too
_DATA_BYTES = (2 * 1024**2, 6 * 1024**2)  # on its way for seconds, at the rate of the hosts' links
_RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"}
_RESTARTS["restart-strategy.fixed-delay.delay"] = "200ms"


class Jobs:
    """Makes the jobs of a history, each with files of its own."""

    def __init__(self, place: Path, chance: random.Random, seed: str, most: int) -> None:
        self._place = place
        self._chance = chance
        self._seed = seed
        self._left = most
        self._number = 0
        self._data = b""  # of the newest large file

    def make(self) -> SubmittedJob | None:
        """Return a job that is not submitted yet; None if there were enough."""
        if self._left == 0:
            return None
        self._left -= 1
        self._number += 1
        place = self._place / f"job-{self._number}"
        place.mkdir(parents=True)
        payload = place / "payload.py"
        payload.write_text(f"# {self._chance.randbytes(self._chance.choice((500, 150_000))).hex()}\n", encoding="ascii")
        modules, data = [payload], self._large_file(place) if self._chance.random() < _SHARE_WITH_DATA else None
        if data is not None:
            modules.append(_LAB_FILES)
            files = {path.name: _sha256(path) for path in (payload, _LAB_FILES, data)}
            (place / "files").write_text(json.dumps(files), encoding="ascii")
        entries = self._chance.randint(30, 250)
        is_stored = self._chance.random() < _SHARE_STORED
        arguments = (str(place), str(entries), str(PAUSE), *(() if is_stored else (payload.name, _sha256(payload))))
        return SubmittedJob(
            f"{self._seed}/{self._number}",
            prepared_job(
                arguments,
                *modules,
                script=_GATEWAY_SCRIPT if is_stored else _SCRIPT,
                files="" if data is None else str(data),
            ),
            place,
            entries,
            is_stored=is_stored,
            is_kept=self._chance.random() < _SHARE_KEPT,
        )

    def _large_file(self, place: Path) -> Path:
        if not self._data or self._chance.random() >= _SHARE_REPEATED:
            self._data = self._chance.randbytes(self._chance.randint(*_DATA_BYTES))
        path = place / "data.bin"
        path.write_bytes(self._data)
        return path


def prepared_job(
    arguments: tuple[str, ...], *modules: Path, script: Path = _SCRIPT, memory: str = "256m", files: str = ""
) -> PreparedJob:
    """Return a job that runs a script of the histories. ``memory``: of its driver."""
    options = SparkOptions(
        py_files=",".join(map(str, modules)),
        driver_memory=memory,
        executor_memory="256m",
        num_executors="1",
        files=files or None,
    )
    return prepare(Program(str(script), None, arguments), options, _RESTARTS, {})


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
