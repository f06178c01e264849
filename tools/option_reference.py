"""Generates docs/configuration.md from the declared options."""

from __future__ import annotations

from typing import Any

from emberkeep.base.configuration import options as _declared  # noqa: F401  (importing it fills the registry)
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.configuration.values import Option, options

_HEAD = """# Configuration

<!-- Written by `python -m tools.check_docs --write` from the declared options. Do not edit. -->

This page is for those who configure a cluster or a job. It lists every option. To see the values in effect, and where
each one comes from:

```console
$ emberkeep config show --origin
```

Settings have flat dotted keys, with Flink's names where Flink has the same setting. They come from three sources. If
several of them set a key, the last one in this list wins:

1. a YAML file: `--config FILE`, else `$EMBERKEEP_CONF`, else `config.yaml` below the state directory, if there is one;
2. the environment: `EMBERKEEP_` and the key in upper case, with `__` for each dot and `_` for each dash;
3. `-D key=value` on the command line.

An unknown key is an error that names the nearest known one. `emberkeep config check` checks a file. `emberkeep
run -D key=value` sets options of that job alone,
such as its restart strategy and the time-outs of its executors and slots.

Durations are written `500ms`, `10s`, `5min`, `2h` or `1d`, sizes `64k`, `512m` or `2g` (powers of 1024).
"""

_TAIL = """
## Read next

[Clusters](clusters.md): what to set for one machine, and for several. [Security](security.md) and [several
JobManagers](high-availability.md) explain the options of these two subjects.
"""


def render() -> str:
    """Return the whole page."""
    return _HEAD + "".join(_section(option) for option in options()) + _TAIL


def _section(option: Option[Any]) -> str:
    lines = [f"\n## `{option.key}`\n", option.doc, ""]
    lines.append(f"- type: {option.kind}")
    lines.append(f"- default: {_shown(option)}")
    lines.append(f"- environment: `{environment_variable(option.key)}`")
    if option.deprecated_keys:
        lines.append(f"- deprecated names: {', '.join(f'`{key}`' for key in option.deprecated_keys)}")
    return "\n".join(lines) + "\n"


def _shown(option: Option[Any]) -> str:
    value = option.default
    if value == "":
        return "empty"
    if option.kind == "duration":
        return f"`{value:g}s`"
    if option.kind == "size" and value and value % 1024**2 == 0:
        return f"`{value // 1024**2}m`"
    if option.kind == "boolean":
        return f"`{str(value).lower()}`"
    return f"`{value}`"
