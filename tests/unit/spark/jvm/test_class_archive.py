"""Which class archives are used: whole ones, of this Java and this Spark, that nobody else can write."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.class_archive import _archive_path, _publish, default_directory, find_class_archive


@pytest.fixture
def spark(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core.jar").write_text("classes")
    return {"SPARK_HOME": str(tmp_path / "spark")}


@pytest.fixture
def java(tmp_path: Path) -> JavaRuntime:
    (tmp_path / "java").write_text("a java")
    return JavaRuntime(None, tmp_path / "java", 17)


@pytest.fixture
def archive(tmp_path: Path, java: JavaRuntime, spark: dict[str, str]) -> Path:
    (tmp_path / "unfinished").write_bytes(b"x" * 1000)
    path = _archive_path(java, tmp_path, spark)
    _publish(tmp_path / "unfinished", path)
    return path


def test_whole_archive_is_found(tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path) -> None:
    assert find_class_archive(java, tmp_path, spark) == archive


def test_truncated_archive_is_not_used(tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path) -> None:
    archive.write_bytes(b"x" * 999)
    assert find_class_archive(java, tmp_path, spark) is None


def test_archive_that_others_can_write_is_not_used(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    archive.chmod(0o666)
    assert find_class_archive(java, tmp_path, spark) is None


def test_archive_of_other_jars_is_not_used(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    (Path(spark["SPARK_HOME"]) / "jars" / "core.jar").write_text("other classes")
    assert archive.exists()
    assert find_class_archive(java, tmp_path, spark) is None


def test_damaged_record_means_no_archive(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    archive.with_suffix(".record").write_text("1000")
    assert find_class_archive(java, tmp_path, spark) is None


def test_archives_live_in_the_users_cache() -> None:
    assert default_directory({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/emberkeep/class-archives")
