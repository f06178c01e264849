"""``dashboards export``: writes the Grafana dashboards and the alert rules to a directory."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import Fatal
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say

dashboards_app = App(name="dashboards", help="Grafana dashboards and Prometheus alert rules.", sort_key=31)

RULES = "emberkeep.rules.yml"
RUNBOOK = "docs/runbook.md#"  # what the links of the rules begin with
_FOLDER = resources.files("emberkeep.cli.monitoring")


@dashboards_app.command
def export(directory: Path, *, docs_url: Annotated[str, Parameter(name="--docs-url")] = "") -> int:
    """Write the dashboards and the alert rules to a directory, and replace those that it has.

    Parameters
    ----------
    directory
        Directory for the files; created if it does not exist.
    docs_url
        Where your people read Emberkeep's documentation, such as https://wiki.example/emberkeep/docs.
        The alerts then link to runbook.md there.
    """
    files = files_to_export(docs_url)
    try:
        for name, text in files.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            print_line(str(target))
    except OSError as error:
        raise Fatal(
            f"cannot write {error.filename or directory}: {error.strerror or error}",
            hint="name a directory in which this user may write",
        ) from None
    say(f"load {RULES} in Prometheus (rule_files), and import the dashboards in Grafana; see docs/monitoring.md")
    return ExitCode.OK


def files_to_export(docs_url: str = "") -> dict[str, str]:
    """Return the text of each file, by its path below the target directory."""
    rules = _FOLDER.joinpath(RULES).read_text(encoding="utf-8")
    if docs_url:
        rules = rules.replace(RUNBOOK, f"{docs_url.rstrip('/')}/runbook.md#")
    boards = sorted(_FOLDER.joinpath("dashboards").iterdir(), key=lambda entry: entry.name)
    return {
        RULES: rules,
        **{f"dashboards/{board.name}": board.read_text(encoding="utf-8") for board in boards},
    }
