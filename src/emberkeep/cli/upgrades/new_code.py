"""Options of ``emberkeep upgrade`` that say how the new code is started and judged: they go with a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.jobs.submit_options import DEFAULT_SUBMIT, SubmitOptions

_NAMED_DIFFERENTLY = {"main_class": "--class"}


def refuse_options_of_new_code(given: Mapping[str, object], spark: SubmitOptions) -> None:
    """Raise InvalidInput if there is such an option, for a command without a script. ``given``: None if it is not."""
    fields = [field.name for field in dataclasses.fields(spark)]
    named = [name for name, value in given.items() if value is not None]
    named += [name for name in fields if getattr(spark, name) != getattr(DEFAULT_SUBMIT, name)]
    if named:
        option = _NAMED_DIFFERENTLY.get(named[0], f"--{named[0].replace('_', '-')}")
        raise InvalidInput(
            f"{option} is given without a script",
            field=option,
            hint="emberkeep upgrade JOB [OPTIONS] SCRIPT [ARGUMENTS...] starts an upgrade",
        )
