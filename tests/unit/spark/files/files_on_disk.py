"""HadoopFiles without a JVM, for tests that need no more than this machine's disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from emberkeep.base.errors import Absent
from emberkeep.lifecycle.manifest import SavepointFile, described
from emberkeep.spark.files.hadoop import FoundFile, HadoopFiles


class FilesOnDisk:
    """What HadoopFiles has, of absolute paths."""

    def below(self, directory: str) -> list[FoundFile]:
        root = Path(directory)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        return [FoundFile(str(path.relative_to(root)), path.stat().st_size) for path in files]

    def numbered(self, directory: str) -> list[int]:
        return sorted(int(path.name) for path in Path(directory).glob("*") if path.name.isdecimal())

    def exists(self, location: str) -> bool:
        return Path(location).exists()

    def read_text(self, location: str) -> str:
        return self.read_bytes(location).decode()

    def read_bytes(self, location: str) -> bytes:
        try:
            return Path(location).read_bytes()
        except FileNotFoundError:
            raise Absent(f"{location} does not exist") from None

    def add_log_entry(self, location: str, text: str, *, overwrite: bool = False) -> None:
        with Path(location).open("w" if overwrite else "x") as file:
            file.write(text)

    def write(self, location: str, data: bytes) -> SavepointFile:
        Path(location).parent.mkdir(parents=True, exist_ok=True)
        Path(location).write_bytes(data)
        return described(location, data)

    def copy(self, source: str, target: str) -> SavepointFile:
        return self.write(target, self.read_bytes(source))

    def check(self, location: str) -> SavepointFile:
        return described(location, self.read_bytes(location))

    def make_directories(self, directories: Iterable[str]) -> None:
        for directory in directories:
            Path(directory).mkdir(parents=True, exist_ok=True)

    def path_on_disk(self, location: str) -> str | None:
        return location if location.startswith("/") else None

    def sync_copies(self, root: str, files: Iterable[str]) -> None:
        pass

    def delete(self, location: str) -> None:
        path = Path(location)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def files_on_disk() -> HadoopFiles:
    return cast(HadoopFiles, FilesOnDisk())


def write_checkpoint(root: Path, batch: int, query_id: str = "7b5c") -> None:
    """Of a query without state, which has committed ``batch``; -1: none."""
    for log, text in (("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{batch}}}'), ("commits", _COMMIT)):
        (root / log).mkdir(parents=True, exist_ok=True)
        if batch >= 0:
            (root / log / str(batch)).write_text(text)
    (root / "metadata").write_text(f'{{"id":"{query_id}"}}')


_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
