"""Mistakes in the file of a declared job, in words that do not need the data model behind it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<found>[^`]*)`")
_LENGTH = re.compile(r"Expected `str` of length (?P<bound>>=|<=) (?P<limit>\d+)")
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<bound>>=|<=) (?P<limit>\S+)")
_ENUM = re.compile(r"Invalid enum value (?P<value>.*)")
_PLACE = re.compile(r"(?P<what>.*) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "fields with values",
    "null": "nothing",
}
_BOUNDS = {">=": "at least", "<=": "at most"}


def mistake(text: str, fields: Mapping[str, Sequence[str]]) -> str:
    """Return what msgspec's text says of a file. ``fields``: the known ones by their place; "": at the top."""
    placed = _PLACE.fullmatch(text)
    what, place = (placed["what"], placed["place"]) if placed else (text, "")
    where = f" in {place}" if place else ""
    if found := _UNKNOWN.fullmatch(what):
        return f"unknown field {found['field']!r}{where}{_suggestion(found['field'], place, fields)}"
    if found := _MISSING.fullmatch(what):
        return f"{found['field']} is missing{where}"
    return f"{place}: {_said(what)}" if place else _said(what)


def _suggestion(field: str, place: str, fields: Mapping[str, Sequence[str]]) -> str:
    home = next((other for other, names in fields.items() if other != place and field in names), None)
    if home is not None:
        return f": it belongs in {home}" if home else ": it belongs at the top"
    near = difflib.get_close_matches(field, fields.get(place, ()), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def _said(what: str) -> str:
    if found := _TYPE.fullmatch(what):
        return f"expected {_in_words(found['wanted'])}, not {_in_words(found['found'])}"
    if found := _LENGTH.fullmatch(what):
        unit = "character" if found["limit"] == "1" else "characters"
        return f"expected {_BOUNDS[found['bound']]} {found['limit']} {unit}"
    if found := _BOUND.fullmatch(what):
        return f"expected {_BOUNDS[found['bound']]} {found['limit']}"
    if found := _ENUM.fullmatch(what):
        return f"{found['value']} is not a value that this release knows"
    return what


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | "))
