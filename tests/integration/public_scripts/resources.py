"""The files that PySpark's examples read, below the directory in which they run."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.integration.public_scripts.scripts import DATA

PEOPLE = (("Ada", 36), ("Grace", None), ("Edsger", 17), ("Barbara", 19))
WORDS = ("the fire dies", "the embers stay", "a fire comes back", "stay by the fire")


def write_resources(place: Path) -> None:
    """Write them below ``place``: those of the package as `data/mllib`, and rows of our own for those it has not."""
    (place / "data").mkdir()
    (place / "data" / "mllib").symlink_to(DATA)
    resources = place / "examples" / "src" / "main" / "resources"
    nested = resources / "dir1" / "dir2"
    nested.mkdir(parents=True)
    people = [{"name": name, "age": age} if age is not None else {"name": name} for name, age in PEOPLE]
    (resources / "people.json").write_text("".join(f"{json.dumps(each)}\n" for each in people))
    (resources / "people.txt").write_text("".join(f"{name}, {age or 40}\n" for name, age in PEOPLE))
    (resources / "people.csv").write_text("name;age;job\n" + "".join(f"{name};{age};Author\n" for name, age in PEOPLE))
    elements = (f"<person><name>{name}</name><age>{age or 40}</age></person>" for name, age in PEOPLE)
    (resources / "people.xml").write_text(f"<people>{''.join(elements)}</people>\n")
    users = pa.table(
        {
            "name": [name for name, _ in PEOPLE],
            "favorite_color": ["red", None, "blue", "red"],
            "favorite_numbers": pa.array([[3, 9], [], [15], [4, 8]], pa.list_(pa.int32())),
        }
    )
    pq.write_table(users, resources / "users.parquet")
    orc.write_table(users, resources / "users.orc")
    pq.write_table(pa.table({"file": ["file1.parquet"]}), nested.parent / "file1.parquet")
    pq.write_table(pa.table({"file": ["file2.parquet"]}), nested / "file2.parquet")
    rows = (f"{key}\x01val_{key}\n" for key in [*range(0, 300, 3), *range(0, 20, 2)])
    (resources / "kv1.txt").write_text("".join(rows))
    (place / "words.txt").write_text("".join(f"{line}\n" for line in WORDS))
    points = ((row % 2, *(row * column % 7 for column in range(10))) for row in range(40))
    (place / "points.txt").write_text("".join(f"{' '.join(map(str, point))}\n" for point in points))
    # Word2vec ignores words that come less than five times, and the example asks for one of these.
    (place / "sentences.txt").write_text("china india rome paris\n" * 10)
    (place / "numbers.txt").write_text("10 9 2\n33 1\n7 7\n")
