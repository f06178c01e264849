"""``security init|bundle``: the cluster's own CA, and the certificates that it issues for other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.cluster_options import ConfigOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.tables import print_fields

security_app = App(name="security", help="Make the certificates with which a cluster encrypts its links.", sort_key=31)
DEFAULT_CONFIG = ConfigOptions()


@security_app.command
def init(
    *,
    hosts: Annotated[tuple[str, ...], Parameter(name="--host", metavar="NAME")] = (),
    config: ConfigOptions = DEFAULT_CONFIG,
) -> int:
    """Make the cluster's CA and a certificate for this machine, below the state directory. Valid ones are kept.

    Parameters
    ----------
    hosts
        Name or address at which this machine is reached; may be repeated. Loopback names are always included.
    """
    from emberkeep.base.tls.authority import CertificateAuthority

    layout = config.layout()
    made = CertificateAuthority(layout.tls).ensure(hosts)
    print_fields(
        [
            ("Directory", str(layout.tls)),
            ("Hosts", ", ".join(sorted(made.hosts))),
            ("Certificate ends", f"{made.expires:%Y-%m-%d}"),
            ("Next", "emberkeep security bundle --host NAME DIRECTORY   (for each other machine)"),
        ]
    )
    return ExitCode.OK


@security_app.command
def bundle(
    directory: str,
    /,
    *,
    hosts: Annotated[tuple[str, ...], Parameter(name="--host", metavar="NAME")] = (),
    config: ConfigOptions = DEFAULT_CONFIG,
) -> int:
    """Write what another machine needs to DIRECTORY: the CA's certificate, a new certificate and its key.

    Parameters
    ----------
    directory
        A new directory, or one with an earlier bundle.
    hosts
        Name or address at which the other machine is reached; may be repeated.
    """
    from emberkeep.base.tls.authority import CertificateAuthority

    if not hosts:
        raise InvalidInput("--host is missing", field="--host", hint="name the address at which the machine is called")
    layout, target = config.layout(), Path(directory).absolute()
    made = CertificateAuthority(layout.tls).bundle(target, hosts)
    say(f"the bundle in {target} holds a key: copy it over an encrypted connection, then delete it here")
    print_fields(
        [
            ("Hosts", ", ".join(sorted(made.hosts))),
            ("Certificate ends", f"{made.expires:%Y-%m-%d}"),
            (
                "Next",
                f"copy its files to `tls` (mode 0700) below the state directory there, and {layout.token_file} too",
            ),
        ]
    )
    return ExitCode.OK
