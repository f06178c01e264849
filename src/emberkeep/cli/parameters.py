"""Parameters that several commands have, each with its help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from emberkeep.cli.completion import candidates
from emberkeep.cli.tables import OutputFormat

JOB_GROUP = Group("Job", sort_key=5)

JobSwitch = Annotated[bool, Parameter(group=JOB_GROUP)]

Job = Annotated[str, Parameter(help="Job id, a prefix of one, or a job name.", completer=candidates.jobs)]
# For arguments that have a help of their own:
CompletedJob = Annotated[str, Parameter(completer=candidates.jobs)]
CompletedTaskManager = Annotated[str, Parameter(completer=candidates.task_managers)]
Node = Annotated[str, Parameter(help="Id of the node, as `emberkeep node list` shows it.", completer=candidates.nodes)]
SavepointPath = Annotated[
    str, Parameter(help="The savepoint's directory, as the cluster sees it.", completer=candidates.savepoints)
]
Output = Annotated[
    OutputFormat,
    Parameter(
        name=["--output", "-o"],
        metavar="table|wide|json|yaml",
        help="Output format: text to read, the same with all columns and full ids, or the API's fields for programs.",
    ),
]
PlainOutput = Annotated[Output, Parameter(help="Output format: text to read, or JSON or YAML for programs.")]
Module = Annotated[
    str | None,
    Parameter(
        name=["--module", "-m"],
        metavar="MODULE",
        group=JOB_GROUP,
        help="Run a module instead of a script, as python -m does.",
    ),
]
FromSavepoint = Annotated[
    str | None,
    Parameter(
        name="--from-savepoint",
        metavar="PATH",
        group=JOB_GROUP,
        completer=candidates.savepoints,
        help="Start from this savepoint: each streaming query continues from its position there.",
    ),
]
JobNamespace = Annotated[
    str,
    Parameter(
        name="--namespace",
        metavar="NAME",
        group=JOB_GROUP,
        help="Namespace of the job: identities with another one do not see it. Default: that of the caller's token.",
    ),
]
Secrets = Annotated[
    tuple[str, ...],
    Parameter(
        name="--secret",
        metavar="NAME[=FILE]",
        group=JOB_GROUP,
        help="Environment variable of driver and executors, with the text in FILE, or with the value that it has here. "
        "It is stored encrypted and never shown; may be repeated.",
    ),
]
SavepointTarget = Annotated[
    str | None,
    Parameter(
        name="--savepoint-path",
        metavar="DIR",
        help="Directory or URI in which the savepoint gets a directory of its own. "
        "Default: the job's or cluster's execution.checkpointing.savepoint-dir.",
    ),
]
Detach = Annotated[
    bool,
    Parameter(negative=(), help="Return as soon as the request is durable; print the request's id."),
]
