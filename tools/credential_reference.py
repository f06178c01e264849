"""Generates docs/credentials.md from the tables of the access checks, so that the page cannot differ from them."""

from __future__ import annotations

from emberkeep.protocol.driver_messages import FROM_DRIVERS
from emberkeep.rest.table import ROUTES

_HEAD = """\
# What a job's credentials reach

<!-- Written by `python -m tools.check_docs --write` from the tables of the access checks. Do not edit. -->

This page is for those who must know what the code of a job can do to a cluster with what it is given. To see the
credentials of a running driver, on its node:

```console
$ ls -l ~/.local/state/emberkeep/taskmanagers/*/jobs/*/1/driver/
```

A driver gets credentials of its own. They are good for one attempt of one job, and are derived from the cluster's
token, which a driver does not get. If `security.encryption` is `none`, a driver uses the cluster's token instead: who
can read the network could then read either.

| File in the directory of the attempt | Content |
| --- | --- |
| `token` | the token that the driver sends to JobManagers and task managers, and that task managers send to it |
| `driver.pem` | the driver's certificate and its key; task managers accept no other one from this attempt |
| `ca.pem` | the cluster's CA, by which the driver verifies JobManagers and task managers |

## Requests to JobManagers and task managers

Each of these must be about the driver's own attempt; all other kinds are refused with 403.

"""
_ROUTES = """
## Routes of the REST API

Each of these must name the driver's own job; all other routes, and the pages, are refused with 403.

"""
_TAIL = """
## State gateways

The credential for a state gateway belongs to one process: a driver, or an executor in one slot. It opens the checkpoint
locations of the process's own job, which the task manager signs, and nothing else on the node
([local state](local-state.md)). An attempt that is over is fenced.

## Executors

Executors get no token of the cluster and no certificate. They have:

- Spark's own secret, with which Spark's processes of one job authenticate each other;
- the credential of their node's state gateway;
- the job's secrets (`--secret`), as environment variables.

## What limits this

Unless `security.run-as` names others, drivers and executors run as the task manager's user. Code of a job can then
read the files of that user, the cluster's token and the key of the node's certificate among them. See
[security](security.md).

## Read next

[Threat model](threat-model.md): what an attacker could do with these credentials, and what protects against it.
"""


_PURPOSES = {
    "AskLeader": "ask which JobManager is the leader",
    "JobMasterBeat": "keep the slots that the attempt holds on a task manager",
    "JobMasterHeartbeat": "report the attempt's state, and receive what the job is asked to do",
    "ListLocalState": "list the copies of the job's state on a node's disk",
    "RegisterJobMaster": "announce that the attempt's JobMaster is ready",
    "ReleaseSlot": "release a slot that the attempt holds, and end its executor",
    "ReportOutcome": "report how the attempt ended",
    "StartExecutor": "start an executor in a slot that the attempt holds",
}


def render() -> str:
    """Return the text of docs/credentials.md."""
    kinds = "".join(f"- `{kind}`: {_PURPOSES[kind]}\n" for kind in sorted(FROM_DRIVERS))
    routes = "".join(f"- `{each.method} {each.full_path}`: {each.summary}\n" for each in ROUTES if each.drivers)
    return _HEAD + kinds + _ROUTES + routes + _TAIL
