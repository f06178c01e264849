"""The arguments that all daemons take: the sources of their configuration."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout, state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.places import with_resolved_places
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.base.configuration.values import Configuration


def parse_arguments(daemon: str, arguments: list[str]) -> tuple[Configuration, StateLayout]:
    """Read ``--state-dir DIR``, ``--config FILE`` and any number of ``-D key=value``.

    Raises InvalidInput (a wrong setting, or a location that would differ from process to process), SystemExit (wrong
    arguments).
    """
    parser = argparse.ArgumentParser(prog=f"emberkeep {daemon}", allow_abbrev=False)
    parser.add_argument("--state-dir", metavar="DIR", help="keep everything below this directory")
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration file (YAML)")
    parser.add_argument("-D", metavar="KEY=VALUE", dest="definitions", action="append", default=[], help="one setting")
    given = parser.parse_args(arguments)
    definitions = list(given.definitions)
    if given.state_dir:
        definitions.append(f"{STATE_DIRECTORY.key}={given.state_dir}")
    configuration = load_configuration(config_file=given.config, environ=os.environ, definitions=definitions)
    configuration = with_resolved_places(configuration)
    return configuration, state_layout(configuration, os.environ)
