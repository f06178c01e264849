"""Java's properties format, as Spark reads it in ``spark-defaults.conf`` and ``--properties-file``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"(?P<key>(?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SPACE = "".join(map(chr, range(33))).replace("\r", "").replace("\n", "")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values. If a key is repeated, its last value is used.

    As in Spark, space around values is removed, but no escaped line ends. Raises ValueError (a broken ``\\u`` escape).
    """
    found = {}
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        assert match is not None, "every line has a key, which may be empty"  # noqa: S101
        found[_unescape(match["key"])] = _unescape(match["value"]).strip(_SPACE)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines, without comments and blank lines.

    A line with an odd number of final backslashes continues on the next line.
    """
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        sequence = match[1]
        if sequence[0] == "u":
            if len(sequence) == 1:
                raise ValueError(f"{text!r}: \\u needs four hex digits")
            return chr(int(sequence[1:], 16))
        return _LETTERS.get(sequence, sequence)

    return _ESCAPE.sub(replace, text)
