"""What a file's name says about its bytes."""

import pytest

from emberkeep.local_state.file_names import is_temporary, is_unique

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
