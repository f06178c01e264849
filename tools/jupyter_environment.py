"""Makes the environment whose Jupyter executes notebooks in the tests: ``python -m tools.jupyter_environment``.

``requirements-jupyter.lock`` locks it. PySpark and what a client of Spark Connect needs are those of the project's own
environment, as they are large: its packages come after those of the lock. Emberkeep is not among them.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from tools.locked_environment import ROOT, LockedEnvironment, install

_LOCK = ROOT / "requirements-jupyter.lock"
_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


def _fill(python: Path) -> None:
    install(python, "--require-hashes", "-r", str(_LOCK))
    found = subprocess.run([str(python), "-c", _PACKAGES], check=True, capture_output=True, text=True)
    (Path(found.stdout.strip()) / "project.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


JUPYTER = LockedEnvironment("jupyter", (_LOCK,), _fill)

if __name__ == "__main__":
    print(JUPYTER.make())
