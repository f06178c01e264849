"""The file in which a JVM says how to connect to it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from emberkeep.spark.errors import JvmStartFailed
from emberkeep.spark.jvm.gateway_connection import Connection, read_connection


def test_the_connection_is_read_as_java_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "gateway"
    file.write_bytes(struct.pack(">ii", 40001, 5) + b"token")
    assert read_connection(file) == Connection(40001, "token")


@pytest.mark.parametrize("content", [b"", b"\0" * 7, struct.pack(">ii", 1, 1) + b"\xff"])
def test_a_damaged_connection_is_a_failed_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "gateway"
    file.write_bytes(content)
    with pytest.raises(JvmStartFailed, match=str(file)):
        read_connection(file)


def test_an_absent_connection_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_connection(tmp_path / "gateway")
