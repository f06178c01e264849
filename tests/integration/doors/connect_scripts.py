"""Programs of Spark Connect clients. They print what they see, for the test that started them.

The test and the tasks of the clients speak through files, as all of them run on one machine.
"""

# A notebook: its environment has the server's address. It waits for a line of input where the driver is killed.
NOTEBOOK = """
import sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

try:
    spark = SparkSession.builder.getOrCreate()
    spark.range(10).createOrReplaceTempView("kept_by_the_session")
    print("first", spark.sql("select sum(id) from kept_by_the_session").collect()[0][0], flush=True)
except PySparkException as error:
    print("refused", *str(error).split(), flush=True)
    sys.exit(1)

def slow(x):
    time.sleep(8)
    return x + 7

print("a query runs", flush=True)
print("kept", spark.range(1).select(udf(slow, "long")("id")).collect()[0][0], flush=True)
sys.stdin.readline()
try:
    spark.sql("select sum(id) from kept_by_the_session").collect()
    print("the session is still there", flush=True)
except PySparkException as error:
    print("lost", error.getCondition(), flush=True)
spark.stop()
spark = SparkSession.builder.getOrCreate()
plus_one = udf(lambda x: x + 1, "long")
print("second", sum(row[0] for row in spark.range(10).select(plus_one("id")).collect()), flush=True)
spark.stop()
"""

# One whose query runs when the driver is killed.
ASKING = """
import sys, time
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

address, place = sys.argv[1], Path(sys.argv[2])

def session():
    return SparkSession.builder.remote(f"{address};user_id=asking").getOrCreate()

def long_work(x):
    (place / "runs").touch()
    while not (place / "killed").exists():
        time.sleep(0.1)
    return x + 1

def answer():
    return spark.range(0, 1, 1, 1).select(udf(long_work, "long")("id")).collect()[0][0]

spark = session()
try:
    print("answer", answer(), flush=True)
except PySparkException as error:
    print("lost", error.getCondition(), flush=True)
spark.stop()
spark = session()
print("again", answer(), flush=True)
spark.stop()
"""

# One whose queries run while leaders are lost, in one session with a view.
HOLDING = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

address, place = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.remote(f"{address};user_id=holding").getOrCreate()
spark.range(10).createOrReplaceTempView("kept_by_the_session")

def held(number):
    def hold(x):
        (place / f"runs-{number}").touch()
        while not (place / f"go-{number}").exists():
            time.sleep(0.1)
        return x + 7
    return spark.range(0, 1, 1, 1).select(udf(hold, "long")("id")).collect()[0][0]

for number in range(2):
    answer = held(number)
    print("held", answer, "view", spark.sql("select sum(id) from kept_by_the_session").collect()[0][0], flush=True)
spark.stop()
"""

# One that asks again and again, of a view of its session, and ends with the first error that it sees.
FREQUENT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

address, place, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
try:
    spark = SparkSession.builder.remote(f"{address};user_id={name}").getOrCreate()
    spark.createDataFrame([(3,), (4,)], "id long").createOrReplaceTempView("kept_by_the_session")
    with (place / f"answers-{name}").open("a") as answers:
        while not (place / "enough").exists():
            found = spark.sql("select sum(id) from kept_by_the_session").collect()[0][0]
            assert found == 7, found
            print(found, file=answers, flush=True)
            time.sleep(0.2)
    print("no error", flush=True)
except Exception as error:
    print(repr(error).replace("\\n", " "), flush=True)
    raise
spark.stop()
"""

# One of two users. Each makes views, functions and settings of the same names, tries to get at those of the other, and
# asks the server for the session of the other.
USER = """
import sys, time
from pathlib import Path
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

address, name, other, place, count, zone = sys.argv[1:]
count, place = int(count), Path(place)

def builder(more=""):
    return SparkSession.builder.remote(f"{address};user_id={name}{more}")

def say(*words):
    print(*words, flush=True)

def meet(what):
    (place / f"{what}-{name}").touch()
    while not (place / f"{what}-{other}").exists():
        spark.conf.get("spark.sql.session.timeZone")  # its session is not idle
        time.sleep(0.1)

def value(query):
    return spark.sql(query).collect()[0][0]

def refusal(query):
    try:
        return f"none: {value(query)}"
    except PySparkException as error:
        return error.getCondition()

def views(session):
    return sorted(table.name for table in session.catalog.listTables())

def together(x):
    (place / f"runs-{name}").touch()
    while not (place / "both").exists():
        time.sleep(0.1)
    return x

def times(x):
    return x * count

spark = builder().getOrCreate()
spark.range(count).createOrReplaceTempView("numbers")
spark.range(1).createOrReplaceTempView(f"of_{name}")
spark.udf.register("times", times, "long")
spark.udf.register(f"times_of_{name}", times, "long")
spark.conf.set("spark.sql.session.timeZone", zone)
(place / f"session-{name}").write_text(spark.session_id)
meet("ready")
say("views", *views(spark))
say("own", value("select sum(id) from numbers"), value("select times(2)"), spark.conf.get("spark.sql.session.timeZone"))
say("other", refusal(f"select * from of_{other}"), refusal(f"select times_of_{other}(2)"))

theirs = builder(f";session_id={(place / f'session-{other}').read_text()}").create()
say("taken", *views(theirs))
theirs.stop()
meet("tried")
say("after", value("select sum(id) from numbers"))

say("together", spark.range(0, 1, 1, 1).select(udf(together, "long")("id")).collect()[0][0])
while not (place / "ended").exists():
    if name == "ann":
        spark.conf.get("spark.sql.session.timeZone")  # she is active, the other one is not
    time.sleep(0.5)
say("idle", refusal("select sum(id) from numbers"))
if name == "ben":
    spark.stop()
    spark = builder().getOrCreate()
    say("again", spark.range(count).count())
spark.stop()
"""
