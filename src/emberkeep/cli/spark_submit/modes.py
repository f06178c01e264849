"""What a command line of spark-submit asks for: where the cluster is, and what the command waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emberkeep.base.errors import InvalidInput

MASTER = "spark.master"
DEPLOY_MODE = "spark.submit.deployMode"

# Beginning of a master to the property that says whether spark-submit waits in cluster mode, and its default.
_WAITS = {
    "yarn": ("spark.yarn.submit.waitAppCompletion", True),
    "k8s": ("spark.kubernetes.submission.waitAppCompletion", True),
    "": ("spark.standalone.submit.waitAppCompletion", False),
}
_SHELLS = ("pyspark-shell", "spark-shell", "sparkr-shell", "connect-shell", "spark-internal", "run-example")


@dataclass(frozen=True)
class Mode:
    """``url``: the JobManager's address, if the master is one. ``is_client``: the job ends with the command.

    ``waits``: the command waits for the job's end. ``reports_exit_code``: tools look for the exit code in its output.
    """

    url: str | None
    is_client: bool
    waits: bool
    reports_exit_code: bool


def mode_of(settings: Mapping[str, str], environ: Mapping[str, str]) -> Mode:
    """Return the mode for the merged settings. Raises InvalidInput for an unknown deploy mode."""
    master = settings.get(MASTER) or environ.get("MASTER", "")
    deploy_mode = settings.get(DEPLOY_MODE) or environ.get("DEPLOY_MODE") or "client"
    if deploy_mode not in ("client", "cluster"):
        raise InvalidInput(
            f"--deploy-mode {deploy_mode}: expected client or cluster",
            field="--deploy-mode",
            hint="client: end with the job, and with its exit code; cluster: return once the job is accepted",
        )
    key, default = next(each for start, each in _WAITS.items() if master.startswith(start))
    is_client = deploy_mode == "client"
    return Mode(
        url=master if master.startswith(("http://", "https://")) else None,
        is_client=is_client,
        waits=is_client or settings.get(key, str(default)).strip().lower() == "true",
        reports_exit_code=master.startswith("k8s") and not is_client,
    )


def last_given(options: Iterable[str], repeatable: str) -> list[str]:
    """Return the options without those that a later one replaces, as spark-submit reads them.

    >>> last_given(["--name=a", "--conf=x=1", "--conf=y=2", "--name=b"], "--conf")
    ['--conf=x=1', '--conf=y=2', '--name=b']
    """
    kept: dict[str, str] = {}
    for option in options:
        name = option if option.startswith(f"{repeatable}=") else option.partition("=")[0]
        kept.pop(name, None)
        kept[name] = option
    return list(kept.values())


def refuse_shells(resource: str | None) -> None:
    """Raise InvalidInput if what should run is one of Spark's shells."""
    if resource in _SHELLS:
        raise InvalidInput(
            f"{resource}: Emberkeep runs PySpark scripts, no shells and no JVM applications",
            field="script",
            hint="start a shell with pyspark's own spark-submit",
        )
