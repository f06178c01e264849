"""A ZooKeeper server: ``python -m emberkeep.daemons.zookeeper``. Becomes the Java process, with the same pid."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import EmberkeepError
from emberkeep.daemons.announcement import announce_failure
from emberkeep.daemons.process_main import EXIT_FAILED
from emberkeep.spark.jvm.zookeeper_server import Peer, ServerPlan, prepare_server


def main(arguments: list[str]) -> int:
    try:
        command = prepare_server(_plan(arguments), os.environ)
    except EmberkeepError as error:
        announce_failure(error)
        return EXIT_FAILED
    return _become(command)


def _become(command: list[str]) -> NoReturn:
    os.execv(command[0], command)  # noqa: S606 - no shell is meant


def _plan(arguments: list[str]) -> ServerPlan:
    parser = argparse.ArgumentParser(prog="emberkeep zookeeper", allow_abbrev=False)
    parser.add_argument("--directory", type=Path, required=True, help="directory for its data and configuration")
    parser.add_argument("--address", default="127.0.0.1", help="address to bind")
    parser.add_argument("--client-port", type=int, required=True)
    parser.add_argument("--number", type=int, default=1, help="number of this server among the peers")
    parser.add_argument(
        "--peer",
        metavar="NUMBER:QUORUM-PORT:ELECTION-PORT[:HOST]",
        type=_peer,
        action="append",
        default=[],
        dest="peers",
        help="a member of the quorum, on another host if HOST is given",
    )
    parser.add_argument("--certificate", default="", help="file with its certificate and key, to encrypt its links")
    parser.add_argument("--ca", default="", help="file with the CAs that prove the other peers")
    given = parser.parse_args(arguments)
    tls = TlsFiles(given.certificate, given.certificate, given.ca) if given.certificate else None
    return ServerPlan(given.directory, given.address, given.client_port, given.number, tuple(given.peers), tls)


def _peer(text: str) -> Peer:
    number, quorum_port, election_port, *host = text.split(":", 3)
    return Peer(int(number), int(quorum_port), int(election_port), *host)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
