"""What a file's name says about its bytes."""

import pytest

from emberkeep.local_state.file_names import is_temporary, is_unique, renamed_to
from emberkeep.local_state.spark_layout import is_store_directory

UUID = "0815abcd-1234-5678-9abc-0123456789ab"


@pytest.mark.parametrize(
    ("name", "unique", "temporary"),
    [
        (f"offsets/.1.{UUID}.tmp", True, True),
        (f"state/0/1/1_{UUID}.zip", True, False),
        (f"{UUID}/1.delta", False, False),
        (f"{UUID}/1.tmp", False, False),
        ("state/0/1/1.delta", False, False),
        ("offsets/1.tmp", False, False),
    ],
)
def test_names(name: str, unique: bool, temporary: bool) -> None:
    assert (is_unique(name), is_temporary(name)) == (unique, temporary)


@pytest.mark.parametrize(
    ("name", "later"),
    [
        (f"q/state/0/1/.6.zip.{UUID}.TID12.tmp", "q/state/0/1/6.zip"),
        (f"q/offsets/.7.{UUID}.tmp", "q/offsets/7"),
        (f".metadata.{UUID}.tmp", "metadata"),
        (f"q/state/0/1/.6_{UUID}.zip.{UUID}.TID1.tmp", f"q/state/0/1/6_{UUID}.zip"),
        (f"q/state/0/1/SSTs/000009-{UUID}.sst", None),
        (f"q/{UUID}.tmp", None),
        ("q/offsets/.7.tmp", None),
    ],
)
def test_a_temporary_name_says_what_the_file_will_be_called(name: str, later: str | None) -> None:
    assert renamed_to(name) == later


@pytest.mark.parametrize(
    ("name", "is_store"),
    [
        ("q/state/0/1", True),
        ("q/state/0/1/left-keyToNumValues", True),
        ("q/state/0/1/SSTs", False),
        ("q/state/0/1/_metadata", False),
        ("q/state/0/1/6.zip", False),
        (f"q/state/0/1/.6.zip.{UUID}.TID12.tmp", False),
        ("q/state/0", False),
        ("q/state/0/_metadata", False),
        ("q/offsets", False),
        ("", False),
    ],
)
def test_directories_of_state_stores(name: str, is_store: bool) -> None:
    assert is_store_directory(name) == is_store
