"""Text that cannot act on the terminal, page or file in which it is shown."""

from __future__ import annotations

_CONTROLS = (*range(0x20), 0x7F, *range(0x80, 0xA0))  # C0, DEL, C1
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))  # Unicode's bidi controls
_LAYOUT = frozenset(map(ord, "\n\t"))
_INERT = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*_CONTROLS, *_DIRECTIONS)
    if code not in _LAYOUT
}


_INERT_JSON = {code: f"\\u{code:04x}" for code in _INERT}


def inert_json(text: str) -> str:
    """Return JSON of the same meaning without control characters. ``text``: JSON whose only ones are in its strings.

    Encoders escape those below U+0020 only; terminals obey others, too.
    """
    return text.translate(_INERT_JSON)


def inert(text: str) -> str:
    """Return the text with control characters, except newlines and tabs, as escapes: ``\\x1b`` is shown, not obeyed."""
    return text.translate(_INERT)


def encodable(text: str) -> str:
    """Return the text with escapes for what UTF-8 has no bytes for: surrogates, as in names with other bytes.

    >>> encodable("caf\\udce9")
    'caf\\\\udce9'
    """
    return text.encode(errors="backslashreplace").decode()


def cut_short(text: str, most: int) -> str:
    """Return the text, not longer than ``most`` characters: … stands for the rest.

    >>> cut_short("no space left", 9)
    'no space…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
