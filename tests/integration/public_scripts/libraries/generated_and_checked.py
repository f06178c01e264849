"""Rows that dbldatagen draws, and what quinn, chispa, Pandera and Fugue make of them."""

import chispa
import dbldatagen
import fugue.api
import pandas as pd
import pandera.pyspark as pa
import quinn
from pyspark.sql import SparkSession, types
from pyspark.sql import functions as fn

spark = SparkSession.builder.appName("generated and checked").getOrCreate()

spec = (
    dbldatagen.DataGenerator(spark, name="devices", rows=400, partitions=4, randomSeed=42, randomSeedMethod="fixed")
    .withIdOutput()
    .withColumn("Site Code", "integer", minValue=1, maxValue=5, random=True)
    .withColumn("Reading", "integer", minValue=0, maxValue=100, random=True)
)
devices = quinn.snake_case_col_names(spec.build()).cache()
quinn.validate_presence_of_columns(devices, ["id", "site_code", "reading"])
print(sorted(set(quinn.column_to_list(devices, "site_code"))))
devices.groupBy("site_code").agg(fn.count("*"), fn.sum("reading")).orderBy("site_code").show()


def ranked(site: pd.DataFrame) -> pd.DataFrame:
    return site.assign(place=site["reading"].rank(method="first", ascending=False))


places = fugue.api.transform(devices, ranked, "*, place:double", partition={"by": "site_code", "presort": "id"})
places.where("place <= 2").orderBy("site_code", "place").show()
chispa.assert_df_equality(places.drop("place"), devices, ignore_row_order=True, ignore_nullable=True)

changed = devices.withColumn("reading", fn.when(fn.col("id") == 7, -1).otherwise(fn.col("reading")))
try:
    chispa.assert_df_equality(changed, devices, ignore_row_order=True)
except chispa.DataFramesNotEqualError:
    print("chispa: not equal")


class Device(pa.DataFrameModel):  # type: ignore[misc]
    id: types.LongType = pa.Field(ge=0)
    reading: types.IntegerType = pa.Field(ge=0)


print("Pandera:", *(error["check"] for error in Device.validate(changed).pandera.errors["DATA"]["DATAFRAME_CHECK"]))
spark.stop()
