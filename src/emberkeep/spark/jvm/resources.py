"""Custom resources, such as GPUs, in Spark's notation: settings that ask for them, and the file that lists them.

Spark calls these files ``--resourcesFile`` (executors) and ``spark.driver.resourcesFile``. It runs its own discovery
scripts only for resources that the file does not list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from emberkeep.spark.errors import InvalidSparkConfiguration


def resource_amounts(conf: Mapping[str, str], component: str) -> dict[str, int]:
    """Return the amount of each resource that a component, such as ``spark.executor``, asks for.

    Raises InvalidSparkConfiguration.
    """
    key = re.compile(rf"{re.escape(component)}\.resource\.([^.]+)\.amount")
    found: dict[str, int] = {}
    for match in (key.fullmatch(each) for each in conf):
        if match is None:
            continue
        text = conf[match.group(0)].strip()
        if not (text.isascii() and text.isdigit()):
            raise InvalidSparkConfiguration(
                f"{match.group(0)}={text!r} is not a whole number", hint="only amounts of tasks may be fractions"
            )
        if int(text):
            found[match.group(1)] = int(text)
    return found


def resources_json(component: str, addresses: Mapping[str, tuple[str, ...]]) -> str:
    """Return the text of a file that gives a component its resources."""
    return json.dumps(
        [
            {"id": {"componentName": component, "resourceName": name}, "addresses": list(addresses[name])}
            for name in sorted(addresses)
        ]
    )
