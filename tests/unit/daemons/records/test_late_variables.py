"""The record of the variables that a process has got after its start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emberkeep.base.errors import EmberkeepError, Fatal
from emberkeep.base.files.durable import write_record
from emberkeep.daemons.records.late_variables import (
    VARIABLES_KIND,
    VARIABLES_VERSION,
    read_late_variables,
    write_late_variables,
)
from tests.campaign import examples


@pytest.mark.parametrize("variables", [{}, {"A": "1", "Ä": "", "B": "two\nlines"}])
def test_the_variables_are_read_as_they_were_written(tmp_path: Path, variables: dict[str, str]) -> None:
    path = tmp_path / "record"
    write_late_variables(path, variables)
    assert read_late_variables(path) == variables
    write_late_variables(path, {"C": "3"})
    assert read_late_variables(path) == {"C": "3"}


def test_without_a_record_a_process_got_none_late(tmp_path: Path) -> None:
    assert read_late_variables(tmp_path / "record") is None


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"A":1}', b'{"A":"\xff"}', b"[" * 100_000])
def test_a_record_of_something_else_is_refused(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "record"
    write_record(path, VARIABLES_KIND, VARIABLES_VERSION, payload)
    with pytest.raises(Fatal, match=str(path)):
        read_late_variables(path)


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 200), part=st.binary(min_size=1, max_size=8), kept=st.integers(0, 200))
def test_a_damaged_record_is_refused_or_sound(tmp_path: Path, at: int, part: bytes, kept: int) -> None:
    path = tmp_path / "record"
    variables = {"GATEWAY": "127.0.0.1:40001"}
    write_late_variables(path, variables)
    data = path.read_bytes()
    path.write_bytes(data[:at] + part + data[kept:])
    try:
        assert read_late_variables(path) == variables
    except EmberkeepError as error:
        assert str(path) in str(error)  # noqa: PT017 - the record may be sound


def test_variables_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises((UnicodeEncodeError, msgspec.MsgspecError)):
        write_late_variables(tmp_path / "record", {"A": "\udcff"})
    assert not (tmp_path / "record").exists()
