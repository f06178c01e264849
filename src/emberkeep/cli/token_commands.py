"""``token create|list|revoke|whoami``: named tokens, with which others call the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import Output
from emberkeep.cli.tables import OutputFormat, print_data, print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show
from emberkeep.cli.wording import timestamp

if TYPE_CHECKING:
    from emberkeep.protocol.rest_tokens import TokenList

RoleName = Literal["metrics", "viewer", "submitter", "operator", "admin"]
_COLUMNS = ("ID", "NAME", "ROLE", "NAMESPACE", "STATE", "CREATED", "EXPIRES")

token_app = App(name="token", help="Make, list and revoke named tokens, each with a role.", sort_key=32)


@token_app.command
def create(
    name: str,
    /,
    *,
    role: RoleName,
    expires: Annotated[str, Parameter(metavar="DURATION")] = "90d",
    namespace: str = "",
    output: Output = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Make a token and print it, this once. Its holder puts it into a file (mode 0600): security.token-file.

    A holder can have two valid tokens at a time: make the new one, replace the old one, then revoke the old one.

    Parameters
    ----------
    name
        Who gets the token: a person, a team or a program. Shown as the owner of the jobs that it submits.
    role
        metrics: read /metrics. viewer: see everything. submitter: also submit jobs, stop and cancel its own.
        operator: act on all jobs, nodes and BLOBs. admin: also make tokens and end the cluster.
    expires
        How long it is valid, such as 12h or 30d.
    namespace
        The holder sees only jobs of this namespace, and submits jobs into it. Default: all jobs.
    """
    from emberkeep.base.identity import Role
    from emberkeep.protocol.rest_tokens import NewToken

    wanted = NewToken(name=name, role=Role(role), namespace=namespace, valid_for=_milliseconds(expires))
    made = with_client(cluster.require(), lambda client: client.tokens.create(wanted))
    if output.is_data:
        print_data(made, output)
    else:
        say(f"token {made.info.id} of {name!r}, role {role}, is valid until {timestamp(made.info.expires)}")
        say("it is shown this once; the cluster keeps only a hash")
        print_line(made.token)
    return ExitCode.OK


@token_app.default
@token_app.command(name="list")
def list_tokens(*, viewing: Viewing = DEFAULT_VIEWING, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """List the named tokens, the oldest first. Their secrets are not stored."""

    def text(found: TokenList, _is_wide: bool) -> None:
        if not found.tokens:
            say("no named tokens yet; make one with `emberkeep token create NAME --role ROLE`")
            return
        rows = [
            (
                token.id,
                token.name,
                token.role.value,
                token.namespace or "-",
                token.state,
                timestamp(token.created),
                timestamp(token.expires),
            )
            for token in found.tokens
        ]
        print_table(_COLUMNS, rows)

    show(cluster, viewing, lambda client: client.tokens.list(), text)
    return ExitCode.OK


@token_app.command
def revoke(token: str, /, *, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Revoke one token by its id, or all tokens of a name. Running jobs continue.

    Exit code 4 if there is no such token.

    Parameters
    ----------
    token
        Id or name, as `emberkeep token list` shows them.
    """
    ended = with_client(cluster.require(), lambda client: client.tokens.revoke(token)).tokens
    if not ended:
        say(f"{token}: no token was still valid")
    for each in ended:
        say(f"token {each.id} of {each.name!r} is revoked")
    return ExitCode.OK


@token_app.command
def whoami(*, output: Output = OutputFormat.TABLE, cluster: ClusterOptions = DEFAULT_CLUSTER) -> int:
    """Show the holder of the token that this command uses."""
    caller = with_client(cluster.require(), lambda client: client.tokens.caller())
    if output.is_data:
        print_data(caller, output)
    else:
        inside = f", namespace {caller.namespace}" if caller.namespace else ""
        ends = f", until {timestamp(caller.expires)}" if caller.expires >= 0 else ""
        print_line(f"{caller.name}, role {caller.role}{inside}{ends}")
    return ExitCode.OK


def _milliseconds(text: str) -> int:
    """Return the duration of ``--expires`` in milliseconds. Raises InvalidInput."""
    from emberkeep.base.configuration.option_types import duration

    try:
        return round(duration(text) * 1000)
    except ValueError as error:
        raise InvalidInput(f"--expires {text}: {error}", field="--expires", hint="for example 12h or 30d") from None
