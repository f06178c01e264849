"""Location of Spark's jars (in the pyspark package, or below SPARK_HOME), and the class path made from them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from emberkeep.spark.errors import SparkInternalsMissing


def spark_home(environ: Mapping[str, str]) -> Path:
    """Return ``SPARK_HOME`` if set, else the directory of the installed pyspark package.

    Raises SparkInternalsMissing if pyspark is not installed or the directory has no jars.
    """
    configured = environ.get("SPARK_HOME")
    if configured:
        home = Path(configured)
        origin = "SPARK_HOME"
    else:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise SparkInternalsMissing("the pyspark package is not installed", hint="pip install pyspark")
        home = Path(spec.origin).parent
        origin = "the installed pyspark package"
    if not (home / "jars").is_dir():
        raise SparkInternalsMissing(
            f"{home} ({origin}) has no jars directory", hint="pip install pyspark, and unset SPARK_HOME"
        )
    return home


def class_path(
    environ: Mapping[str, str], extra: str = "", jars: Iterable[Path] = (), *, jars_first: bool = False
) -> str:
    """Return the class path that Spark's launcher builds: extra, configuration, Spark's jars, Hadoop's directories.

    The job's own ``jars`` come last; with ``jars_first`` they come first and so override Spark's. A configuration
    directory that does not exist is left out: with pip it usually does not exist.
    """
    home = spark_home(environ)
    configuration = Path(environ.get("SPARK_CONF_DIR") or home / "conf")
    own = [str(jar) for jar in jars]
    parts = [
        *(own if jars_first else []),
        extra,
        str(configuration) if configuration.is_dir() else "",
        str(home / "jars" / "*"),
    ]
    parts += [environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")]
    parts += [] if jars_first else own
    return ":".join(part for part in parts if part)


def spark_version() -> str:
    """Return the version of the installed pyspark, such as "4.3.0", without importing pyspark."""
    return version("pyspark")
