"""The jobs of a history: some have a large file, which their executors get as well."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from campaign.processes import jobs
from campaign.processes.clients import SubmittedJob
from emberkeep.jobs.model import ArtefactRole


def made(place: Path, count: int) -> list[SubmittedJob]:
    maker = jobs.Jobs(place, random.Random("7-1/jobs"), "7-1", count)
    found = [job for _ in range(count) if (job := maker.make()) is not None]
    assert len(found) == count
    assert maker.make() is None
    return found


def test_a_job_names_each_file_that_its_processes_must_find(tmp_path: Path) -> None:
    with_data = [job for job in made(tmp_path, 8) if (job.place / "files").exists()]
    assert with_data
    for job in with_data:
        files = json.loads((job.place / "files").read_text())
        submitted = {
            each.name: (each.sha256, each.role)
            for each in job.prepared.submission.artefacts
            if each.role is not ArtefactRole.SCRIPT
        }
        assert submitted == {
            "payload.py": (files["payload.py"], ArtefactRole.PY_FILE),
            "lab_files.py": (files["lab_files.py"], ArtefactRole.PY_FILE),
            "data.bin": (files["data.bin"], ArtefactRole.FILE),
        }
        assert hashlib.sha256((job.place / "data.bin").read_bytes()).hexdigest() == files["data.bin"]


def test_the_same_seed_makes_the_same_jobs_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_DATA_BYTES", (100, 200))

    def kinds(place: Path) -> list[tuple[bool, bool, str, int]]:
        found = made(place, 40)
        data = [job.place / "data.bin" for job in found]
        contents = [path.read_bytes().hex() if path.exists() else "" for path in data]
        return [
            (job.is_stored, job.is_kept, content, job.entries) for job, content in zip(found, contents, strict=True)
        ]

    first = kinds(tmp_path / "first")
    assert kinds(tmp_path / "second") == first
    assert len({(stored, kept, bool(content)) for stored, kept, content, _ in first}) == 8
    contents = [content for _, _, content, _ in first if content]
    assert len(set(contents)) < len(contents), "some have the content of an earlier one"
