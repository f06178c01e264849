"""Addresses of lists that have pages, and numbers in addresses. Pure."""

from __future__ import annotations

from urllib.parse import urlencode

from emberkeep.base.errors import InvalidInput


def page_address(path: str, page: int, **query: str) -> str:
    """Return the address of a page of a list. ``query``: what selects its entries; "" selects nothing."""
    given = {name: value for name, value in query.items() if value}
    if page != 1:
        given["page"] = str(page)
    return f"{path}?{urlencode(given)}" if given else path


def parse_page(text: str) -> int:
    """Return a page number, from 1 on. Raises InvalidInput."""
    number = parse_number(text, "page")
    if not number:
        raise InvalidInput("0 is not the number of a page", field="page")
    return number


def parse_number(text: str, field: str) -> int:
    """Return a number from 0 on. ``field``: what it is the number of. Raises InvalidInput."""
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise InvalidInput(f"{text[:40]!r} is not the number of {_with_article(field)}", field=field)
    return int(text)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def page_count(entries: int, per_page: int) -> int:
    """Return how many pages a list has: at least one."""
    return max(1, -(-entries // per_page))
