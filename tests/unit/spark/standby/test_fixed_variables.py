"""Variables that a standby process cannot be given later."""

from __future__ import annotations

import pytest

from emberkeep.base.processes.variable_names import differing_variables
from emberkeep.spark.standby.fixed_variables import FIXED_FOR_DRIVERS, FIXED_FOR_EXECUTORS


@pytest.mark.parametrize(
    ("before", "after", "drivers", "executors"),
    [
        ({}, {}, (), ()),
        ({"PATH": "/a", "JOB": "1"}, {"PATH": "/b", "SECRET": "2"}, (), ()),
        ({"LANG": "C"}, {"LANG": "C"}, (), ()),
        ({"LANG": "C"}, {"LANG": "de_DE"}, ("LANG",), ("LANG",)),
        ({}, {"LD_LIBRARY_PATH": "/lib"}, ("LD_LIBRARY_PATH",), ("LD_LIBRARY_PATH",)),
        ({"LD_PRELOAD": "/x.so"}, {}, ("LD_PRELOAD",), ("LD_PRELOAD",)),
        ({}, {"LD_PRELOAD": ""}, ("LD_PRELOAD",), ("LD_PRELOAD",)),
        ({}, {"LANGUAGE": "de"}, (), ()),
        ({}, {"MY_LD_LIBRARY_PATH": "/lib"}, (), ()),
        ({}, {"LC_ALL": "C", "TZ": "UTC", "HOME": "/h"}, ("HOME", "LC_ALL", "TZ"), ("HOME", "LC_ALL", "TZ")),
        ({"JAVA_HOME": "/a"}, {"JAVA_HOME": "/b"}, ("JAVA_HOME",), ("JAVA_HOME",)),
        ({}, {"JDK_JAVA_OPTIONS": "-Dx"}, ("JDK_JAVA_OPTIONS",), ("JDK_JAVA_OPTIONS",)),
        ({}, {"MALLOC_ARENA_MAX": "2"}, ("MALLOC_ARENA_MAX",), ("MALLOC_ARENA_MAX",)),
        # An executor's Python workers are started later, with the environment of that time.
        ({"PYTHONPATH": "/a"}, {"PYTHONPATH": "/b"}, ("PYTHONPATH",), ()),
        ({}, {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}, ("OMP_NUM_THREADS", "PYTHONHASHSEED"), ()),
    ],
)
def test_what_differs(
    before: dict[str, str], after: dict[str, str], drivers: tuple[str, ...], executors: tuple[str, ...]
) -> None:
    assert differing_variables(before, after, FIXED_FOR_DRIVERS) == drivers
    assert differing_variables(before, after, FIXED_FOR_EXECUTORS) == executors
