"""Users of the operating system for a test, and an Emberkeep that they can run: the tests' own may be in a home."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def why_impossible() -> str:
    """Return why this machine cannot have the test's users; "" if it can."""
    if os.geteuid() != 0:
        return "only root can create two users and start processes as them: run this test as root"
    missing = [program for program in ("useradd", "userdel") if shutil.which(program) is None]
    return f"{missing[0]} is not installed" if missing else ""


@contextmanager
def two_users() -> Iterator[tuple[str, str]]:
    """Create two users, and remove them afterwards."""
    suffix = secrets.token_hex(3)
    names = f"ek-a-{suffix}", f"ek-b-{suffix}"
    try:
        for name in names:
            subprocess.run(["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["userdel", name], check=False, capture_output=True)


@contextmanager
def place_for_all() -> Iterator[Path]:
    """Yield a directory that all users can enter: the tests' usual ones are closed."""
    directory = Path(tempfile.mkdtemp(prefix="ek-run-as-", dir="/var/tmp"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def program_for_all(directory: Path, user: str) -> Path:
    """Return an `emberkeep` command, in a new environment, whose Python ``user`` can run. Skip if there is none."""
    environment = directory / "python"
    site_packages = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for base in (Path(os.path.realpath(sys.executable)), Path("/usr/bin") / version):
        if not _runs(user, str(base), "-c", ""):
            continue
        subprocess.run([str(base), "-m", "venv", "--without-pip", str(environment)], check=True)
        own = environment / "lib" / version / "site-packages"
        (own / "tests.pth").write_text(f"import site; site.addsitedir({str(site_packages)!r})\n")
        if _runs(user, str(environment / "bin" / "python"), "-P", "-c", "import emberkeep, pyspark"):
            program = environment / "bin" / "emberkeep"
            text = "import sys\nfrom emberkeep.cli.main import main\nsys.exit(main())\n"
            program.write_text(f"#!{environment}/bin/python -P\n{text}")
            program.chmod(0o755)
            return program
    pytest.skip(f"another user can run neither the tests' Python, nor /usr/bin/{version} with the tests' packages")


def _runs(user: str, *words: str) -> bool:
    entry = pwd.getpwnam(user)
    try:
        ended = subprocess.run(
            words, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/", capture_output=True, check=False
        )
    except OSError:
        return False
    return ended.returncode == 0
