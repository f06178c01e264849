"""Read YAML that people have written.

PyYAML raises a YAMLError for text that is not YAML. A scalar whose text does not fit its tag, such as a date that does
not exist or ``!!int ""``, and nesting that is too deep raise errors of many other kinds. Callers that handle YAMLError
alone would take them for bugs, so all YAML is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml


def load_yaml(text: bytes | str) -> Any:
    """Return the value of a document of plain data. Raises yaml.YAMLError, and nothing else, if it has none."""
    with _as_yaml_error():
        return yaml.safe_load(text)


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a document, with each scalar as it was written. Raises yaml.YAMLError, and nothing else."""
    with _as_yaml_error():
        return yaml.compose(text, Loader=yaml.BaseLoader)


@contextmanager
def _as_yaml_error() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ArithmeticError, ValueError) as error:  # a date that does not exist, a number with thousands of digits
        raise yaml.YAMLError(str(error)) from None
    except (AttributeError, LookupError, TypeError) as error:
        raise yaml.YAMLError("a value does not have the form that its tag names") from error
