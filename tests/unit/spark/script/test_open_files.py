"""Files that a script leaves open have all of their content, as after plain Python."""

from __future__ import annotations

import bz2
import gzip
import io
import subprocess
import sys
import zipfile
from pathlib import Path

_RUNNER = """
import os, sys
from emberkeep.spark.script.open_files import finish_files
from emberkeep.spark.script.runner import run_script

outcome = run_script(sys.argv[1], [])
finish_files()
os._exit(outcome.exit_code)
"""


def run(directory: Path, script: str, runner: str = _RUNNER) -> subprocess.CompletedProcess[str]:
    (directory / "job.py").write_text(script)
    command = [sys.executable, "-c", runner, "job.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=directory)


def test_what_was_written_to_open_files_is_there(tmp_path: Path) -> None:
    script = (
        "import atexit, csv\n"
        "text, data = open('text', 'w'), open('data', 'wb')\n"
        "text.write('one'), data.write(b'two')\n"
        "rows = [csv.writer(open('rows', 'w'))]\n"
        "rows[0].writerow([1, 2])\n"
        "atexit.register(lambda: text.write(' and more'))\n"
        "detached = open('detached', 'w')\n"
        "buffer = detached.detach()\n"
        "raise SystemExit(3)\n"
    )
    done = run(tmp_path, script, _RUNNER.replace("finish_files()\n", ""))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert (tmp_path / "text").read_text() == "one and more"
    assert (tmp_path / "data").read_text() == "two"
    assert (tmp_path / "rows").read_text() == "1,2\n"


def test_compressed_files_and_archives_are_whole(tmp_path: Path) -> None:
    script = (
        "import bz2, gzip, zipfile\n"
        "packed, other, archive = gzip.open('p.gz', 'wt'), bz2.open('o.bz2', 'w'), zipfile.ZipFile('a.zip', 'w')\n"
        "packed.write('one'), other.write(b'two'), archive.writestr('three', '3')\n"
    )
    assert run(tmp_path, script).returncode == 0
    assert gzip.decompress((tmp_path / "p.gz").read_bytes()) == b"one"
    assert bz2.decompress((tmp_path / "o.bz2").read_bytes()) == b"two"
    assert zipfile.ZipFile(tmp_path / "a.zip").read("three") == b"3"


def test_a_full_disk_is_said_and_leaves_the_exit_code_as_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, "file = open('/dev/full', 'w')\nfile.write('x')\n")
    assert done.returncode == 0
    assert "No space left on device" in done.stderr


def test_an_archive_in_a_compressed_file_is_whole(tmp_path: Path) -> None:
    script = (
        "import gzip, zipfile\n"
        "class Stream:\n"
        "    def __init__(self, file): self.write, self.flush = file.write, file.flush\n"
        "archive = zipfile.ZipFile(Stream(gzip.open('a.zip.gz', 'w')), 'w')\n"
        "archive.writestr('one', '1')\n"
    )
    done = run(tmp_path, script)
    assert (done.returncode, done.stderr) == (0, "")
    data = gzip.decompress((tmp_path / "a.zip.gz").read_bytes())
    assert zipfile.ZipFile(io.BytesIO(data)).read("one") == b"1"


def test_a_file_to_which_a_thread_hangs_is_said_and_the_others_are_written(tmp_path: Path) -> None:
    """The thread holds the lock of the file: the job would run for ever."""
    script = (
        "import os, threading, time\n"
        "reading, writing = os.pipe()\n"
        "hanging, other = open(writing, 'wb'), open('other', 'w')\n"
        "threading.Thread(target=lambda: hanging.write(b'x' * 1_000_000), daemon=True).start()\n"
        "os.read(reading, 1)\n"
        "other.write('one')\n"
    )
    limited = "from emberkeep.spark.script import open_files\nopen_files._SECONDS = 0.5\n"
    done = run(tmp_path, script, limited + _RUNNER)
    assert done.returncode == 0
    assert "<_io.BufferedWriter name=" in done.stderr
    assert "was not written within 0 s and may be incomplete" in done.stderr
    assert (tmp_path / "other").read_text() == "one"
