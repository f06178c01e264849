"""Finding Java, and the options Spark needs on it."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import JavaNotFound, JavaTooOld
from emberkeep.spark.java import find_java, jvm_open_options, parse_major


def _fake_java(home: Path, *, release: str | None = None, says: str = "") -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    executable.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{release}"\n')
    return executable


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    wanted = _fake_java(tmp_path / "wanted", release="21.0.4")
    other = _fake_java(tmp_path / "other", release="17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "wanted"), "PATH": str(other.parent)})
    assert (found.executable, found.major) == (wanted, 21)
    assert find_java({"PATH": str(other.parent)}).major == 17


def test_version_is_asked_for_where_no_release_file_stands(tmp_path: Path) -> None:
    _fake_java(tmp_path, says='openjdk version "17.0.15" 2025-04-15')
    found = find_java({"JAVA_HOME": str(tmp_path)})
    assert found.major == 17
    assert found.home is None


def test_what_is_missing_or_too_old_is_said_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"no Java runtime.*openjdk-17-jre-headless.*JAVA_HOME"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME is .*nowhere.*not an executable"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere")})
    _fake_java(tmp_path / "old", release="1.8.0_392")
    with pytest.raises(JavaTooOld, match=r"is Java 8 .*openjdk-17-jre-headless"):
        find_java({"JAVA_HOME": str(tmp_path / "old")})
    _fake_java(tmp_path / "strange", says="I am no Java")
    with pytest.raises(JavaNotFound, match="printed no Java version"):
        find_java({"JAVA_HOME": str(tmp_path / "strange")})


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21-ea", 21), ("25", 25)])
def test_versions_of_all_styles_are_understood(text: str, major: int) -> None:
    assert parse_major(text) == major


def test_options_are_those_of_sparks_own_launcher() -> None:
    [jar] = (spark_home({}) / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as archive:
        strings = _string_constants(archive.read("org/apache/spark/launcher/JavaModuleOptions.class"))
    assert jvm_open_options() == [text for text in strings if text.startswith("-")]


def _string_constants(data: bytes) -> list[str]:
    """The string constants of a class file, in the order of its constant pool."""
    count = struct.unpack_from(">H", data, 8)[0]
    texts, strings, position, index = {}, [], 10, 1
    while index < count:
        tag = data[position]
        if tag == 1:
            length = struct.unpack_from(">H", data, position + 1)[0]
            texts[index] = data[position + 3 : position + 3 + length].decode()
            position += 3 + length
        else:
            if tag == 8:
                strings.append(struct.unpack_from(">H", data, position + 1)[0])
            position += {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 18: 5}[tag]
        index += 2 if tag in {5, 6} else 1
    return [texts[string] for string in strings]
