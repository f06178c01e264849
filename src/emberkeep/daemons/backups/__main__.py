"""Runs one action of ``emberkeep backup`` and prints its result as JSON.

A process of its own, like a daemon, because it uses stores as daemons do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import structlog

from emberkeep.adapters.backups.keys import own_token, token_in
from emberkeep.adapters.backups.reading import open_backup
from emberkeep.adapters.backups.verification import verify
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput
from emberkeep.base.files.errors import shortage
from emberkeep.base.inert_text import encodable
from emberkeep.daemons.arguments import parse_arguments
from emberkeep.daemons.backups.creating import create
from emberkeep.daemons.backups.restoring import RestoreRequest, restore
from emberkeep.daemons.local_zookeeper import with_local_zookeeper
from emberkeep.daemons.process_main import EXIT_OK, EXIT_USAGE

_EXIT_FAILED = 1


def main(arguments: list[str]) -> int:
    """Run the action. On failure, write the error as JSON to standard error."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output is the result's
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("action", choices=("create", "verify", "restore"))
    own.add_argument("path", type=Path)
    for flag in ("--with-keys", "--apply", "--force", "--new-token"):
        own.add_argument(flag, action="store_true")
    given, others = own.parse_known_args(arguments)
    try:
        configuration, layout = parse_arguments("backup", others)
        result = asyncio.run(_run(given, configuration, layout))
    except (EmberkeepError, OSError) as error:
        failure = error if isinstance(error, EmberkeepError) else _of_system(error)
        told = {"message": encodable(failure.message), "hint": failure.hint and encodable(failure.hint)}
        sys.stderr.write(f"\n{msgspec.json.encode(told).decode()}")
        return EXIT_USAGE if isinstance(failure, InvalidInput) else _EXIT_FAILED
    sys.stdout.write(msgspec.json.encode(result).decode())
    return EXIT_OK


def _of_system(error: OSError) -> Fatal:
    """Return the operating system's error as ours: this user may not read the state directory, for instance."""
    where = f"{error.filename}: " if error.filename else ""
    return Fatal(
        f"{where}{error.strerror or error}",
        hint=shortage(error) or "run this as the user of the JobManager, and check that its directories can be used",
    )


async def _run(given: argparse.Namespace, configuration: Configuration, layout: StateLayout) -> Any:
    path = given.path.absolute()
    if given.action == "create":
        configuration = with_local_zookeeper(configuration, layout)
        layout = StateLayout(layout.root, configuration)
        return await create(configuration, layout, path, with_keys=given.with_keys)
    reader = await asyncio.to_thread(open_backup, path)
    try:
        if given.action == "verify":
            token = await asyncio.to_thread(own_token, layout) or token_in(reader)
            return await asyncio.to_thread(verify, reader, token)
        request = RestoreRequest(apply=given.apply, force=given.force, new_token=given.new_token)
        return await restore(configuration, layout, reader, request)
    finally:
        reader.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
