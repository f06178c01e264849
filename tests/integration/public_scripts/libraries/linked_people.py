"""Splink, with functions in Scala from its own jar, finds which rows are the same person."""

import splink.comparison_library as cl
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from splink import Linker, SettingsCreator, SparkAPI, block_on
from splink.backends.spark import similarity_jar_location

conf = SparkConf().set("spark.jars", similarity_jar_location()).set("spark.default.parallelism", "2")
context = SparkContext.getOrCreate(conf=conf.set("spark.sql.shuffle.partitions", "2"))
context.setCheckpointDir("checkpoints")
spark = SparkSession(context)

FIRST = ("ada", "grace", "edsger", "barbara", "donald", "alan", "john", "kathleen", "margaret", "niklaus")
LAST = ("lovelace", "hopper", "dijkstra", "liskov", "knuth", "turing", "backus", "booth", "hamilton", "wirth")
people = []
for number in range(60):
    first, last, year = FIRST[number % 10], LAST[number // 6], 1900 + number
    people.append((2 * number, first, last, f"{year}-01-0{number % 9 + 1}"))
    if number % 3 == 0:  # the same person, misspelt
        people.append((2 * number + 1, first, f"{last[:-2]}{last[-1]}{last[-2]}", f"{year}-01-0{number % 9 + 1}"))
frame = spark.createDataFrame(people, "unique_id int, first_name string, surname string, dob string")

settings = SettingsCreator(
    link_type="dedupe_only",
    comparisons=[cl.JaroWinklerAtThresholds("surname", [0.9]), cl.ExactMatch("dob")],
    blocking_rules_to_generate_predictions=[block_on("first_name")],
    max_iterations=3,
)
api = SparkAPI(spark_session=spark)
linker = Linker(api.register(frame), settings)
linker.training.estimate_probability_two_random_records_match([block_on("first_name", "dob")], recall=0.9)
linker.training.estimate_u_using_random_sampling(max_pairs=1e4, min_count_per_level=None, num_chunks=1)
linker.training.estimate_parameters_using_expectation_maximisation(block_on("first_name"))
pairs = linker.inference.predict(threshold_match_probability=0.5).as_spark_dataframe()
pairs.select("unique_id_l", "unique_id_r").orderBy("unique_id_l", "unique_id_r").show(40)
spark.stop()
