"""Mistakes in the file of a declared job, in words that do not need the data model behind it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<found>[^`]*)`")
_ENUM = re.compile(r"Invalid enum value (?P<value>.*)")
_PLACE = re.compile(r"(?P<what>.*) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)
_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "fields with values",
    "null": "nothing",
}


def mistake(text: str, fields: Iterable[str]) -> str:
    """Return what msgspec's text says of a file. ``fields``: all known ones, of which a similar one is suggested."""
    placed = _PLACE.fullmatch(text)
    what, place = (placed["what"], placed["place"]) if placed else (text, "")
    if found := _UNKNOWN.fullmatch(what):
        near = difflib.get_close_matches(found["field"], list(fields), n=1)
        where = f" in {place}" if place else ""
        return f"unknown field {found['field']!r}{where}" + (f": did you mean {near[0]!r}?" if near else "")
    if found := _MISSING.fullmatch(what):
        return f"{found['field']} is missing" + (f" in {place}" if place else "")
    if found := _TYPE.fullmatch(what):
        what = f"expected {_in_words(found['wanted'])}, not {_in_words(found['found'])}"
    elif found := _ENUM.fullmatch(what):
        what = f"{found['value']} is not a value that this release knows"
    return f"{place}: {what}" if place else what


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))
