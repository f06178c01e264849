"""Public scripts and libraries of packages that are not PySpark's: `make public-scripts` brings them."""

from __future__ import annotations

from pathlib import Path

from tests.integration.public_scripts.scripts import Script
from tools.public_scripts_environment import PUBLIC_SCRIPTS, packages

PYTHON = PUBLIC_SCRIPTS.python()
PACKAGES = packages(PUBLIC_SCRIPTS.directory)
LIBRARIES = Path(__file__).with_name("libraries")
_SPLINK = PACKAGES / "splink" / "internals" / "files" / "spark_jars" / "scala-udf-similarity-0.2.1_spark4.x.jar"
TABLES = "tpcds"  # below the directory in which scripts run
QUERIES = ("q3", "q7", "q42", "q67", "q96", "q98")
_CRAWL = PACKAGES / "cc_pyspark" / "jobs"
_TABLE = ("--output_format", "json", "--output_compression", "None", "--num_output_partitions", "1")
# Two tasks of a barrier stage, or two threads of the driver that start jobs.
_TWO_CORES = ("--executor-cores", "2")


def _crawl(name: str, pages: str) -> Script:
    """A script of Common Crawl, which writes a table."""
    arguments = (*_TABLE, f"{pages}.list", name)
    return Script(_CRAWL / f"{name}.py", arguments, tables=(name,), apart="py4j.clientserver: Closing down")


SCRIPTS = (
    _crawl("server_count", "pages.warc"),
    _crawl("word_count", "texts.wet"),
    Script(LIBRARIES / "decision_support.py", (TABLES, *QUERIES)),
    Script(LIBRARIES / "boosted_trees.py", options=_TWO_CORES, digits=3, apart=r"\] \[\d+\]\s+training-"),
    Script(LIBRARIES / "searched_parameters.py", options=_TWO_CORES, apart="Spark local mode doesn't support"),
    # Splink's documentation sets `spark.jars` in the script, which is too late for a driver of spark-submit.
    Script(LIBRARIES / "linked_people.py", options=("--jars", str(_SPLINK)), apart=r"[\d.]+ seconds"),
    Script(LIBRARIES / "generated_and_checked.py"),
)
# It measures how long queries of TPC-DS take.
MEASURING = PACKAGES / "tpcds_pyspark" / "tpcds_pyspark_run.py"
MEASURES = MEASURING.with_name("spark-measure_2.13-0.25.jar")
