"""A task of Luigi that it runs with `spark-submit`: Luigi's own program unpickles the task and calls ``main``."""

import luigi
from luigi.contrib.spark import PySparkTask
from pyspark import SparkContext


class Count(PySparkTask):  # type: ignore[misc]
    """Words and how often they come."""

    source: str = luigi.Parameter()
    target: str = luigi.Parameter()

    def output(self) -> luigi.LocalTarget:
        return luigi.LocalTarget(self.target)

    def main(self, sc: SparkContext, *arguments: str) -> None:
        words = sc.textFile(self.source).flatMap(str.split)
        words.map(lambda word: (word, 1)).reduceByKey(lambda one, other: one + other).saveAsTextFile(self.target)
