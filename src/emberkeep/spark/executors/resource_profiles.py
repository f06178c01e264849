"""Refuse the resource profiles of stages that need executors of another size.

All executors of a job have one size. Without the refusal, a stage with such a profile would wait forever.
"""

from __future__ import annotations

import functools
from typing import Any

from emberkeep.spark.errors import InvalidSparkConfiguration, SparkInternalsMissing

_DYNAMIC = "spark.dynamicAllocation.enabled"


def refuse_executor_profiles() -> None:
    """Patch PySpark in this process. Raises SparkInternalsMissing if a method to patch is missing."""
    from pyspark.core.rdd import RDD
    from pyspark.sql.pandas.map_ops import PandasMapOpsMixin

    for owner, name in ((RDD, "withResources"), (PandasMapOpsMixin, "_build_java_profile")):
        original = getattr(owner, name, None)
        if original is None:
            raise SparkInternalsMissing(
                f"this PySpark has no {owner.__name__}.{name}", hint="Emberkeep works with PySpark 4.3"
            )
        setattr(owner, name, _checked(original))


def _checked(original: Any) -> Any:
    @functools.wraps(original)
    def check_first(owner: Any, profile: Any = None) -> Any:
        if profile is not None:
            _check(profile)
        return original(owner, profile)

    return check_first


def _check(profile: Any) -> None:
    """Raise InvalidSparkConfiguration if this application's executors cannot run tasks of the profile."""
    from pyspark import SparkContext

    wanted = sorted(profile.executorResources)
    if wanted:
        raise InvalidSparkConfiguration(
            f"a stage's resource profile asks for executors of its own ({', '.join(wanted)}), "
            "but all executors of a job on Emberkeep have the same resources",
            hint="set spark.executor.* for the whole job; a profile of task resources only is supported",
        )
    context = SparkContext._active_spark_context
    if context is not None and context.getConf().get(_DYNAMIC, "false") == "true":
        raise InvalidSparkConfiguration(
            f"a stage has a resource profile, but with {_DYNAMIC} Spark runs its tasks only on executors of that "
            "profile, which Emberkeep does not start",
            hint=f"set {_DYNAMIC}=false; profiles of task resources then work",
        )
