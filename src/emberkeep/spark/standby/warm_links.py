"""Warm the code of a JVM that talks to other processes: connections, their encryption, messages and blocks.

The queries of the warm-up run in one JVM and need no connection. Without more, the first connections of an executor
take half a second, and each block that it fetches a tenth: ciphers are slow until the JVM has compiled them.
"""

from __future__ import annotations

import os
from typing import Any

from emberkeep.spark.standby.reflection import Reflection

_MESSAGES = 200
_BLOCKS = 100
_BLOCK_SIZE = 128 * 1024  # bytes
_ENV = "org.apache.spark.SparkEnv"
_MANAGER = "org.apache.spark.storage.BlockManager"


def run_links(context: Any, reflection: Reflection) -> None:
    """Let the JVM of a SparkContext send messages and blocks to itself over connections. Raises SparkInternalsMissing.

    The connections are encrypted as the context's settings say.
    """
    # By fields: to call one method, Java would resolve all of them, and one needs a class that PySpark does not ship.
    env = reflection.get(f"{_ENV}$", "env", reflection.singleton(f"{_ENV}$"))
    _send_messages(context, reflection, env)
    _fetch_blocks(context, reflection, env)


def _send_messages(context: Any, reflection: Reflection, env: Any) -> None:
    spark, rpc = reflection.jvm.org.apache.spark, reflection.get(_ENV, "rpcEnv", env)
    host, conf = rpc.address().host(), context._jsc.sc().conf()
    security = reflection.get(_ENV, "securityManager", env)
    client = spark.rpc.RpcEnv.create("client", host, host, -1, conf, security, 1, True)
    try:
        master = client.setupEndpointRef(rpc.address(), "BlockManagerMaster")
        question = reflection.singleton("org.apache.spark.storage.BlockManagerMessages$GetMemoryStatus$")
        anything = reflection.jvm.scala.reflect.ClassTag.Any()
        for _ in range(_MESSAGES):
            master.askSync(question, anything)
    finally:
        client.shutdown()
        client.awaitTermination()


def _fetch_blocks(context: Any, reflection: Reflection, env: Any) -> None:
    manager = reflection.get(_ENV, "blockManager", env)
    service = reflection.get(_MANAGER, "blockTransferService", manager)
    host, port = service.hostName(), service.port()
    broadcast = context._jsc.broadcast(os.urandom(_BLOCK_SIZE))
    block = f"broadcast_{broadcast.id()}_piece0"
    for _ in range(_BLOCKS):
        service.fetchBlockSync(host, port, "driver", block, None)
    broadcast.destroy()
