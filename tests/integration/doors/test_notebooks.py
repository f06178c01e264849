"""A real Jupyter executes notebooks of documented cells at a Spark Connect server whose driver is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.commands import SMALL, Running, Shell
from tests.integration.conditions import DEADLINE, until
from tools.jupyter_environment import JUPYTER
from tools.locked_environment import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Of what was lost, as the page says.
LOST = {"INVALID_HANDLE.SESSION_CHANGED", "NO_ACTIVE_SESSION"}
VIEW = 'spark.range(10).createOrReplaceTempView("numbers")'
SUM = 'print("sum", spark.sql("select sum(id) from numbers").collect()[0][0])'
# Here the driver is killed. The test and the notebooks speak through files.
WAIT = """
import time
from pathlib import Path
place = Path({place!r})
(place / "reached-{name}").touch()
while not (place / "killed").exists():
    time.sleep(0.1)
"""
REPORT = f"""
import os
address = os.environ["SPARK_REMOTE"]

def report(spark):
    {VIEW}
    {SUM}
"""


def documented(heading: str) -> str:
    """The first block of Python below that heading of the page."""
    page = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}$.*?^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no Python below {heading}"
    return found[1]


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"tags": tags}, "outputs": [], "execution_count": None}


def outputs(notebook: Path) -> list[str]:
    """What each cell has printed, or its error."""
    found = []
    for done in json.loads(notebook.read_text())["cells"]:
        shown = [each for each in done["outputs"] if each.get("name") != "stderr"]
        found.append("".join("".join(each.get("text", each.get("evalue", ""))) for each in shown).strip())
    return found


def executed(shell: Shell, name: str, *cells: dict[str, Any]) -> Running:
    """Start Jupyter on a notebook of these cells, as the page starts it. It writes what they show into the notebook."""
    python = JUPYTER.python()
    assert python is not None, "`make jupyter` makes the environment"
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    path = shell.write(f"{name}.ipynb", json.dumps(notebook))
    execute = (str(python.with_name("jupyter")), "execute", "--inplace", f"--startup_timeout={DEADLINE:g}", str(path))
    return shell.start("connect", "exec", *execute)


def test_notebooks_go_on_after_the_driver_was_killed(cluster: Cluster) -> None:
    shell = cluster.shell
    job_id = JobId(shell.done("connect", "up", "-q", "--num-executors", "1", *SMALL).out.strip())
    cluster.wait_for_driver(job_id)
    session, recovery = documented("Notebooks"), documented("After a lost driver")

    def waits(name: str) -> dict[str, Any]:
        return cell(WAIT.format(place=str(shell.work), name=name))

    by_hand = executed(
        shell,
        "by-hand",
        *(cell(session), cell(VIEW), cell(SUM), waits("by-hand"), cell(SUM, "raises-exception")),
        *(cell("spark.stop()"), cell(session), cell(VIEW), cell(SUM)),
    )
    by_itself = executed(
        shell, "by-itself", *(cell(session), cell(REPORT), cell("report(spark)"), waits("by-itself"), cell(recovery))
    )
    for name, notebook in (("by-hand", by_hand), ("by-itself", by_itself)):
        until(
            lambda name=name, notebook=notebook: (  # type: ignore[misc]
                (shell.work / f"reached-{name}").exists() or notebook.process.poll() is not None
            ),
            lambda notebook=notebook: str(notebook),  # type: ignore[misc]
        )
    os.kill(cluster.wait_for_driver(job_id), signal.SIGKILL)
    cluster.wait_for_driver(job_id, attempt=2)
    (shell.work / "killed").touch()
    for notebook in (by_hand, by_itself):
        ended = notebook.wait()
        assert ended.code == 0, f"{ended}\n{cluster.story(job_id)}"
    *before, error, stopped, again, view, after = outputs(shell.work / "by-hand.ipynb")
    assert before == ["", "", "sum 45", ""]
    assert any(f"[{condition}]" in error for condition in LOST), error
    assert (stopped, again, view, after) == ("", "", "", "sum 45")
    assert outputs(shell.work / "by-itself.ipynb") == ["", "", "sum 45", "", "sum 45"]
    shell.done("connect", "down")
