"""Whatever a persisted file or a ZooKeeper node contains, its reader accepts it or names what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from emberkeep.base.errors import Damaged
from emberkeep.base.files.durable import decode_record
from tests.campaign import examples
from tests.unit.security.hostile_input.stored_files import STORED, contents, read_hostile

pytestmark = [pytest.mark.req("SEC-19"), pytest.mark.req("SEC-8")]


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_hostile_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    @settings(
        max_examples=examples(5),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(data=contents(name))
    def check(data: bytes) -> None:
        read_hostile(name, data, tmp_path / "place")

    check()


def test_a_version_of_thousands_of_digits_is_damage() -> None:
    with pytest.raises(Damaged, match="not an Emberkeep record"):
        decode_record(b"emberkeep-record graph " + b"9" * 5000 + b" 0 00000000\n", "graph", 1, where="file")
