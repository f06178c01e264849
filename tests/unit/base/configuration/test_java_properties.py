import pytest

from emberkeep.base.configuration.java_properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a comment\n! another\n\n   \n", {}),
        (
            "spark.a 1\nspark.b=2\nspark.c : 3\nspark.d\t=\t4",
            {f"spark.{k}": v for k, v in zip("abcd", "1234", strict=True)},
        ),
        ("spark.a", {"spark.a": ""}),
        ("spark.a=x=y:z", {"spark.a": "x=y:z"}),
        ("spark.a one two  \n", {"spark.a": "one two"}),
        ("spark.a=1,\\\n   2,\\\n   3", {"spark.a": "1,2,3"}),
        ("spark.a=C\\:\\\\dir\\tx", {"spark.a": "C:\\dir\tx"}),
        ("sp\\=ark\\ a=1", {"sp=ark a": "1"}),
        ("spark.a=\\u00e9", {"spark.a": "é"}),
        ("spark.a=1\r\nspark.b=2\rspark.c=3", {"spark.a": "1", "spark.b": "2", "spark.c": "3"}),
        ("spark.a=1\nspark.a=2", {"spark.a": "2"}),
        ("spark.a=1\\", {"spark.a": "1"}),
        ("spark.a=#no comment", {"spark.a": "#no comment"}),
        ("spark.a=\\n\nspark.b=\\u0020|\\r\\n\\u0020", {"spark.a": "\n", "spark.b": "|\r\n"}),
        ("spark.a=\u00a0x\u00a0", {"spark.a": "\u00a0x\u00a0"}),
    ],
)
def test_notation(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_escape_is_an_error() -> None:
    with pytest.raises(ValueError, match="four hex digits"):
        parse_properties("spark.a=\\u12")
