"""The sources of settings: one YAML file, then the environment, then ``-D key=value``. Later sources win.

The file has flat dotted keys. Each key has one environment variable: EMBERKEEP_ and the key in upper case, with "__"
for each dot and "_" for each dash (``rest.port`` is EMBERKEEP_REST__PORT). A leading "emberkeep." in the key is left
out (``emberkeep.state-dir`` is EMBERKEEP_STATE_DIR).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.values import REGISTRY, Configuration
from emberkeep.base.configuration.yaml_documents import compose_yaml
from emberkeep.base.errors import InvalidInput

CONFIG_FILE_VARIABLE = "EMBERKEEP_CONF"
_PREFIX = "EMBERKEEP_"

Source = tuple[str, str, str]
"""Key, text, origin."""


def load_configuration(
    *, config_file: Path | None = None, environ: Mapping[str, str], definitions: Sequence[str] = ()
) -> Configuration:
    """Return all settings. ``definitions`` are the "key=value" of ``-D``.

    The file is ``config_file``, else $EMBERKEEP_CONF, else ``config.yaml`` (if it exists) in the state directory that
    environment and definitions name. Raises InvalidInput naming the wrong file, line, variable or option.
    """
    overrides = [*from_environment(environ), *from_definitions(definitions)]
    path = config_file or _file_named_by(environ) or _default_file(overrides, environ)
    configuration = _apply([*(read_file(path) if path else []), *overrides])
    _check_heartbeats(configuration)
    return configuration


def read_file(path: Path) -> list[Source]:
    """Return the settings of a YAML file, in its order. Raises InvalidInput with file and line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInput(f"cannot read the configuration file {path}: {reason}") from None
    try:
        # Every scalar stays the text that was written, so `on` and `0644` are not converted.
        root = compose_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is not valid YAML: {error}") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise InvalidInput(f"{path}: expected lines of the form `key: value`")
    return list(_pairs(path, root))


def from_environment(environ: Mapping[str, str]) -> list[Source]:
    """Return the settings in the environment variables, sorted by variable.

    Raises InvalidInput for a variable that begins with EMBERKEEP_, contains a double underscore and names no key.
    """
    variables = {environment_variable(key): key for key in REGISTRY}
    found = []
    for name in sorted(environ):
        if name in variables:
            found.append((variables[name], environ[name], f"environment {name}"))
        elif name.startswith(_PREFIX) and "__" in name:
            near = difflib.get_close_matches(name, variables, n=1)
            hint = f"did you mean {near[0]}?" if near else "`emberkeep config show --all` lists all keys"
            raise InvalidInput(f"environment variable {name} does not name a configuration key", field=name, hint=hint)
    return found


def from_definitions(definitions: Iterable[str]) -> list[Source]:
    """Return the settings given as ``-D key=value`` options. Raises InvalidInput."""
    found = []
    for definition in definitions:
        key, equals, text = definition.partition("=")
        if not equals or not key.strip():
            raise InvalidInput(f"-D {definition}: expected key=value", hint="for example -D rest.port=9081")
        found.append((key.strip(), text.strip(), "-D"))
    return found


def environment_variable(key: str) -> str:
    """Return the name of the environment variable that sets the option ``key``."""
    return _PREFIX + key.removeprefix("emberkeep.").replace(".", "__").replace("-", "_").upper()


def _file_named_by(environ: Mapping[str, str]) -> Path | None:
    name = environ.get(CONFIG_FILE_VARIABLE)
    return Path(name) if name else None


def _default_file(overrides: Sequence[Source], environ: Mapping[str, str]) -> Path | None:
    path = state_layout(_apply(overrides), environ).config_file
    return path if path.is_file() else None


def _apply(sources: Iterable[Source]) -> Configuration:
    configuration = Configuration()
    for key, text, origin in sources:
        configuration = configuration.with_texts({key: text}, origin)
    return configuration


def _check_heartbeats(configuration: Configuration) -> None:
    """Raise InvalidInput if each process would count its peers as lost between two of their heartbeats."""
    interval, timeout = configuration[HEARTBEAT_INTERVAL], configuration[HEARTBEAT_TIMEOUT]
    if timeout <= interval:
        key = HEARTBEAT_TIMEOUT.key
        raise InvalidInput(
            f"{key} is {timeout:g} s ({configuration.origin(HEARTBEAT_TIMEOUT)}), which is not longer than "
            f"{HEARTBEAT_INTERVAL.key}, {interval:g} s ({configuration.origin(HEARTBEAT_INTERVAL)})",
            field=key,
            hint="set it to several times the interval",
        )


def _pairs(path: Path, root: yaml.MappingNode) -> Iterable[Source]:
    lines: dict[str, int] = {}
    for key_node, value_node in root.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if not isinstance(value_node, yaml.ScalarNode):
            raise InvalidInput(
                f"{path}:{line}: {key} is not a single value", field=key, hint="keys are flat: write `rest.port: 8081`"
            )
        if key in lines:
            raise InvalidInput(f"{path}:{line}: {key} is already set in line {lines[key]}", field=key)
        lines[key] = line
        yield key, value_node.value, f"{path}:{line}"
