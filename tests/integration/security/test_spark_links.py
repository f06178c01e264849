"""Attackers at Spark's own links and files: readers of the network and the disk, and local users at open ports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from emberkeep.spark.java import find_java
from tests.integration.spark.conftest import DriverRunner

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-10")]

_SCRIPT = """
import json, os, socket, struct, threading, zlib
from pathlib import Path
import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat, lit
from runtime_under_test import executors, runtime

MARKER = "the-credit-card-of-" + "somebody"
on_the_link = bytearray()

def pump(source, target):
    while data := source.recv(65536):
        on_the_link.extend(data)
        target.sendall(data)

def accept(listener, target):
    while True:
        executor = listener.accept()[0]
        driver = socket.create_connection(target)
        for pair in ((executor, driver), (driver, executor)):
            threading.Thread(target=pump, args=pair, daemon=True).start()

def wiretap(url):
    endpoint, _, address = url.rpartition("@")
    host, _, port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(listener, (host, int(port))), daemon=True).start()
    return f"{endpoint}@127.0.0.1:{listener.getsockname()[1]}"

def unpacked(data):
    # what Python workers spill: frames, each compressed
    found = b""
    while len(data) > 4:
        length = struct.unpack("!i", data[:4])[0]
        try:
            found += zlib.decompress(data[4 : 4 + length])
        except zlib.error:
            pass
        data = data[4 + length :]
    return found

def readable(directories):
    found = {}
    for directory in directories:
        for parent, _, names in os.walk(directory):
            for name in names:
                try:
                    data = Path(parent, name).read_bytes()
                except FileNotFoundError:
                    continue
                kind = "broadcast" if Path(parent).name.startswith("pyspark-") else name.split("_")[0]
                if "python" in Path(parent).parts:
                    kind, data = "python", unpacked(data)
                found[kind] = found.get(kind, False) or MARKER.encode() in data
    return found

executors.way_to_driver = wiretap
builder = SparkSession.builder.config("spark.shuffle.spill.numElementsForceSpillThreshold", "50000")
builder = builder.config("spark.python.worker.memory", "1m")
for compressed in ("shuffle", "shuffle.spill", "rdd", "broadcast"):
    builder = builder.config(f"spark.{compressed}.compress", "false")
spark = builder.getOrCreate()
local = [str(Path(executors.scratch) / place) for place in ("local", "executor-0/local")]

def while_sorted(rows):
    next(rows)
    yield readable(local)

lines = spark.range(200000).select(concat(lit(MARKER), col("id")).alias("line"))
during = lines.repartition(1).sortWithinPartitions(col("line").desc()).rdd.mapPartitions(while_sorted).first()
broadcast = spark.sparkContext.broadcast([MARKER] * 1000)
def while_merged(groups):
    number, _ = next(groups)
    yield number, readable(local)

pairs = spark.sparkContext.parallelize(range(50000), 1).map(lambda number: (number % 5000, MARKER + str(number)))
merged = dict(pairs.groupByKey(1).mapPartitions(while_merged).collect())
(found,) = merged.values()
during.update(python=found.get("python", False), spilled="python" in found)
longest = spark.sparkContext.parallelize(range(30000), 1).map(lambda number: (0, MARKER + str(number)))
((_, longest),) = longest.groupByKey(1).collect()
assert len(list(longest)) == 30000
numbers = spark.sparkContext.parallelize(range(10), 1)
kept = numbers.map(lambda number: broadcast.value[number]).persist(StorageLevel.DISK_ONLY)
assert set(kept.collect()) == {MARKER}
assert {row.line for row in lines.limit(10).collect()} == {MARKER + str(number) for number in range(10)}

def worker_port():
    for process in psutil.Process(executors.processes[0].pid).children(recursive=True):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return connection.laddr.port

def worker_says(secret):
    with socket.create_connection(("127.0.0.1", worker_port())) as link:
        link.sendall(struct.pack("!i", len(secret)) + secret)
        return link.makefile("rb").read()[-3:].decode()

def gateway_says():
    known = spark.sparkContext._gateway.gateway_parameters
    stranger = JavaGateway(gateway_parameters=GatewayParameters(port=known.port, auth_token="a wrong one"))
    try:
        return stranger.jvm.java.lang.System.currentTimeMillis()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

assert on_the_link
print(json.dumps({
    "files": {**during, **readable(local)},
    "link": MARKER.encode() in on_the_link,
    "worker": worker_says(b"a wrong one"),
    "gateway": gateway_says(),
    "commands": [psutil.Process(pid).cmdline() for pid in (runtime.jvm_pid(), executors.processes[0].pid)],
    "ciphers": spark.sparkContext.getConf().get("spark.network.crypto.enabled"),
}))
"""


_PASSWORD = "not-in-a-command"


def own_tls(directory: Path) -> dict[str, str]:
    """Settings of a user who has a key store."""
    store = directory / "store.p12"
    keytool = find_java(os.environ).executable.resolve().with_name("keytool")
    words = ["-genkeypair", "-alias", "spark", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-validity", "2"]
    subprocess.run([keytool, *words, "-keystore", store, "-storepass", _PASSWORD], check=True, capture_output=True)
    return {
        "spark.ssl.rpc.enabled": "true",
        "spark.ssl.rpc.protocol": "TLSv1.3",
        "spark.ssl.rpc.keyStore": str(store),
        "spark.ssl.rpc.keyStorePassword": _PASSWORD,
        "spark.ssl.rpc.keyPassword": _PASSWORD,
        "spark.ssl.rpc.trustStore": str(store),
        "spark.ssl.rpc.trustStorePassword": _PASSWORD,
    }


@pytest.mark.parametrize("encryption", ["by default", "by the user's TLS", "off"])
def test_data_is_readable_on_no_link_and_in_no_local_file_of_spark(
    tmp_path: Path, class_archive: Path, encryption: str
) -> None:
    conf = own_tls(tmp_path) if encryption == "by the user's TLS" else {}
    done = DriverRunner(tmp_path, class_archive).run(_SCRIPT, encrypts=encryption != "off", spark_conf=conf)
    assert done.exit_code == 0, done.stderr
    results = done.results()
    # Without encryption, the same attackers read everything: they look in the right places.
    readable = encryption == "off"
    assert results["files"].pop("spilled"), "Python workers have spilled"
    assert results["files"] == dict.fromkeys(("broadcast", "python", "rdd", "shuffle", "temp"), readable)
    assert results["link"] is readable
    assert results["ciphers"] == ("true" if encryption == "by default" else None)
    assert results["worker"] == "err"
    assert "uthentication" in results["gateway"]
    assert _PASSWORD not in str(results["commands"])
