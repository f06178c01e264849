"""What the command imports: every import is a part of the time until a job starts."""

import subprocess
import sys
from pathlib import Path

from emberkeep.jobs.model import JobStatus
from tests.unit.client.fake_job_manager import FakeJobManager, FakeLog, job_info

# What only servers, daemons, or the help and the tables of other commands need.
_NOT_NEEDED = ("structlog", "rich", "aiohttp.web", "cryptography", "emberkeep.daemons", "emberkeep.adapters")


def test_a_run_imports_nothing_of_daemons_and_other_commands(fake: FakeJobManager, tmp_path: Path) -> None:
    def end(job_id: str) -> None:
        fake.logs[job_id] = [FakeLog(1, "driver-stdout", b"result\n", complete=True)]
        fake.jobs[job_id] = job_info(job_id, state=JobStatus.FINISHED, exit_code=0)

    fake.on_submit = end
    script = tmp_path / "app.py"
    script.write_text("print('hi')\n")
    code = (
        "import sys; from emberkeep.cli.main import main; code = main();"
        "print('IMPORTED', *sys.modules, file=sys.stderr); sys.exit(code)"
    )
    words = [sys.executable, "-P", "-c", code, "run", "--quiet", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "result\n"), done.stderr
    imported = done.stderr.partition("IMPORTED")[2].split()
    assert "emberkeep.cli.jobs.run" in imported
    assert [name for name in imported if name.startswith(tuple(f"{each}." for each in _NOT_NEEDED))] == []
    commands = [name for name in imported if name.startswith("emberkeep.cli.") and name.endswith("commands")]
    assert commands == ["emberkeep.cli.jobs.commands"]
