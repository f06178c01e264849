"""``doctor``: find what is wrong with this machine and the cluster, and say what to do about it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.processes.answers import answer_in
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import PlainOutput
from emberkeep.cli.tables import OutputFormat, print_data

if TYPE_CHECKING:
    from emberkeep.diagnosis.model import Report

_SECONDS = 180.0  # each probe has a limit of its own, and together they stay below this


def doctor(
    *,
    output: PlainOutput = OutputFormat.TABLE,
    every: Annotated[bool, Parameter(name="--all", negative=())] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Check clocks, Java, ports, storage, ZooKeeper, versions, certificates, disks and limits. Say how to fix each.

    Without a running cluster, check this machine and the configuration.
    Exit code 1 if something does not work. Run it as the user of the cluster's processes.

    Parameters
    ----------
    every
        Show also what is in order.
    """
    report = _examined(cluster)
    from emberkeep.diagnosis.model import Severity

    if output.is_data:
        print_data(report, output)
    else:
        _print(report, every=every or output is OutputFormat.WIDE)
    return ExitCode.FAILED if report.worst is Severity.ERROR else ExitCode.OK


def _examined(cluster: ClusterOptions) -> Report:
    """Return the report of a process that looks as a daemon would. Raises InvalidInput, Fatal."""
    import msgspec

    from emberkeep.diagnosis.model import Report

    arguments = [sys.executable, "-P", "-m", "emberkeep.daemons.doctor"]
    for option, value in (("--config", cluster.effective_config_file()), ("--url", cluster.url)):
        arguments += [f"{option}={value}"] if value is not None else []  # a value may begin with a dash
    for definition in cluster.all_definitions:
        arguments += ["-D", definition]
    try:
        done = subprocess.run(arguments, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Fatal(f"the checks have not ended after {_SECONDS:g} s", hint="please report it") from None
    if done.returncode == ExitCode.USAGE:
        told = msgspec.json.decode(answer_in(done.stderr))
        raise InvalidInput(told["message"], hint=told["hint"])
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").rstrip().splitlines()
        raise Fatal(f"the checks have failed: {lines[-1] if lines else done.returncode}", hint="please report it")
    return msgspec.json.decode(answer_in(done.stdout), type=Report)


def _print(report: Report, *, every: bool) -> None:
    from emberkeep.cli.wording import counted
    from emberkeep.diagnosis.model import Severity, gravest_first

    for finding in gravest_first(report.findings):
        if finding.severity is not Severity.OK or every:
            print_line(f"{finding.severity.upper():<8} {finding.check}: {finding.where}: {finding.what}")
            if finding.fix:
                print_line(f"         fix: {finding.fix}")
    counts = [(severity, sum(each.severity is severity for each in report.findings)) for severity in Severity]
    summary = ", ".join(f"{number} {severity.value}" for severity, number in reversed(counts) if number)
    say(f"{counted(len(report.findings), 'check')}: {summary}")
