"""Queries in the spirit of TPC-H over generated orders: groups, joins of five tables, a subquery, ranks.

Amounts are whole cents and dates are whole days, so each answer is exact.
"""

from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as fn

CUSTOMERS, SUPPLIERS, ORDERS = 300, 20, 3000

spark = SparkSession.builder.appName("joins").config("spark.sql.shuffle.partitions", "4").getOrCreate()


def drawn(column: str, salt: str, bound: int) -> Column:
    """A number below ``bound`` that looks random and is always the same."""
    return fn.pmod(fn.xxhash64(column, fn.lit(salt)), fn.lit(bound))


nations = spark.createDataFrame([(0, "North"), (1, "East"), (2, "South"), (3, "West")], "nation int, label string")
customers = spark.range(CUSTOMERS).select(
    fn.col("id").alias("customer"),
    drawn("id", "nation", 4).alias("nation"),
    fn.element_at(
        fn.array(*map(fn.lit, ("building", "furniture", "machinery"))), (drawn("id", "seg", 3) + 1).cast("int")
    ).alias("segment"),
)
suppliers = spark.range(SUPPLIERS).select(fn.col("id").alias("supplier"), drawn("id", "home", 4).alias("home"))
orders = spark.range(ORDERS).select(
    fn.col("id").alias("order"), drawn("id", "who", CUSTOMERS).alias("customer"), drawn("id", "when", 1000).alias("day")
)
lines = spark.range(4 * ORDERS).select(
    (fn.col("id") / 4).cast("long").alias("order"),
    drawn("id", "from", SUPPLIERS).alias("supplier"),
    (drawn("id", "quantity", 50) + 1).alias("quantity"),
    (drawn("id", "price", 90_000) + 10_000).alias("price"),
    drawn("id", "discount", 11).alias("discount"),
    drawn("id", "delay", 60).alias("delay"),
    fn.element_at(fn.array(fn.lit("A"), fn.lit("N"), fn.lit("R")), (drawn("id", "flag", 3) + 1).cast("int")).alias(
        "flag"
    ),
)
for name, table in {"nations": nations, "customers": customers, "suppliers": suppliers, "orders": orders}.items():
    table.createOrReplaceTempView(name)
lines.createOrReplaceTempView("lines")

print("pricing summary")
spark.sql(
    "SELECT flag, sum(quantity) AS quantity, sum(price * quantity) AS base, "
    "sum(price * quantity * (100 - discount)) AS discounted, count(*) AS lines "
    "FROM lines WHERE delay < 45 GROUP BY flag ORDER BY flag"
).show(truncate=False)

print("unshipped orders of the highest value")
spark.sql(
    "SELECT l.order, o.day, sum(price * quantity * (100 - discount)) AS revenue "
    "FROM customers c JOIN orders o ON c.customer = o.customer JOIN lines l ON l.order = o.order "
    "WHERE segment = 'building' AND o.day < 500 AND o.day + l.delay > 500 "
    "GROUP BY l.order, o.day ORDER BY revenue DESC, l.order LIMIT 10"
).show(truncate=False)

print("volume of suppliers at home")
spark.sql(
    "SELECT label, sum(price * quantity * (100 - discount)) AS revenue FROM customers c "
    "JOIN orders o ON c.customer = o.customer JOIN lines l ON l.order = o.order "
    "JOIN suppliers s ON s.supplier = l.supplier AND s.home = c.nation JOIN nations n ON n.nation = s.home "
    "GROUP BY label ORDER BY label"
).show(truncate=False)

print("customers without an order, and large orders")
spark.sql("SELECT count(*) AS idle FROM customers c LEFT ANTI JOIN orders o ON c.customer = o.customer").show()
spark.sql(
    "SELECT o.order, o.customer FROM orders o WHERE o.order IN "
    "(SELECT l.order FROM lines l GROUP BY l.order HAVING sum(quantity) > 170) ORDER BY o.order LIMIT 10"
).show()

print("best two suppliers of each nation")
by_volume = Window.partitionBy("home").orderBy(fn.desc("volume"), "supplier")
volumes = lines.join(suppliers, "supplier").groupBy("home", "supplier").agg(fn.sum("quantity").alias("volume"))
volumes.withColumn("place", fn.row_number().over(by_volume)).where("place <= 2").orderBy("home", "place").show()

average = fn.udf(lambda values: sum(values) // len(values), "long")
per_day = orders.join(lines, "order").groupBy((fn.col("day") / 100).cast("long").alias("period"))
per_day.agg(average(fn.collect_list("price")).alias("price")).orderBy("period").show()
spark.stop()
