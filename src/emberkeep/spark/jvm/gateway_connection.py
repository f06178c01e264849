"""How a JVM records in a file where its py4j gateway listens, as PySpark's gateway server does."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from emberkeep.spark.errors import JvmStartFailed

CONNECTION_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The variable with the path of the file that the JVM writes."""


@dataclass(frozen=True)
class Connection:
    """How py4j connects to a JVM."""

    port: int
    auth_token: str


def read_connection(file: Path) -> Connection:
    """Return how to connect. Raises OSError, JvmStartFailed (the file says something else).

    Spark writes the file under another name and renames it, so it is complete once it exists.
    """
    data = file.read_bytes()
    try:
        port, length = struct.unpack_from(">ii", data)
        return Connection(port, data[8 : 8 + length].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise JvmStartFailed(f"{file} does not say how to connect to a JVM: {error}") from error
