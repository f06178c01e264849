"""XGBoost trains in a barrier stage: its workers find each other through a tracker and exchange histograms."""

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn
from xgboost.spark import SparkXGBClassifier, SparkXGBRegressor

spark = SparkSession.builder.appName("boosted trees").getOrCreate()


def drawn(salt: str, bound: int) -> Column:
    """A number below ``bound`` that looks random and is always the same."""
    return fn.pmod(fn.xxhash64("id", fn.lit(salt)), fn.lit(bound)).cast("double")


rows = spark.range(600).select("id", *(drawn(name, bound).alias(name) for name, bound in (("a", 20), ("b", 8))))
rows = rows.withColumn("label", fn.col("a") * 3 - fn.col("b") * fn.col("b")).withColumn("class", fn.expr("int(a > b)"))
train, test = rows.where("id % 5 != 0"), rows.where("id % 5 = 0")

regressor = SparkXGBRegressor(features_col="features", label_col="label", num_workers=2, n_estimators=20, max_depth=4)
pipeline = Pipeline(stages=[VectorAssembler(inputCols=["a", "b"], outputCol="features"), regressor])
pipeline.fit(train).write().overwrite().save("trees")
model = PipelineModel.load("trees")
error = RegressionEvaluator(labelCol="label", metricName="rmse").evaluate(model.transform(test))
print(f"error below 3: {error < 3}")
model.transform(test).orderBy("id").select("id", "label", fn.round("prediction").alias("prediction")).show(10)

classifier = SparkXGBClassifier(features_col=["a", "b"], label_col="class", num_workers=1, n_estimators=5)
classes = classifier.fit(train).transform(test)
classes.groupBy("class", "prediction").count().orderBy("class", "prediction").show()
spark.stop()
