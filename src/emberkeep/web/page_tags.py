"""Whether a page has changed since a browser fetched it. Pure.

How long something has lasted differs in each reply, and the page's script sets those texts by itself (``ages.js``). So
they do not count.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

import emberkeep

TIME_HEADER: Final = "Emberkeep-Time"  # Unix milliseconds of the reply
KNOWN_HEADER: Final = "Emberkeep-Known"  # of a request: the tag of the large parts that the browser shows
_AGE: Final = re.compile(r'(<span data-since="\d+">)[^<]*')
_NOW: Final = re.compile(r'(<html [^>]*data-now=")\d+')


def page_tag(text: str) -> str:
    """Return the ETag of a page.

    >>> page_tag('<span data-since="5">1 s</span>') == page_tag('<span data-since="5">2 s</span>')
    True
    >>> page_tag('<span data-since="5">1 s</span>') == page_tag('<span data-since="6">1 s</span>')
    False
    """
    lasting = _NOW.sub(r"\1", _AGE.sub(r"\1", text))
    return f'"{hashlib.sha256(lasting.encode()).hexdigest()[:24]}"'


def part_tag(*facts: Any) -> str:
    """Return a tag of parts of a page that show nothing but these facts. The markup is that of this release."""
    return hashlib.sha256(msgspec.json.encode((emberkeep.__version__, facts))).hexdigest()[:24]
