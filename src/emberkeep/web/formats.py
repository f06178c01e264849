"""Times, durations and amounts as text for people. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime

from emberkeep.jobs.progress.outstanding import Outstanding

DASH = "–"


def moment(time_ms: int | None) -> str:
    """Return a point in time as text in UTC, because readers are in different time zones.

    >>> moment(1795000000000)
    '2026-11-18 11:06:40'
    """
    return DASH if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(milliseconds: int) -> str:
    """Return a duration in its two largest units.

    >>> span(850), span(62_000), span(7_260_000), span(200_000_000)
    ('850 ms', '1 min 2 s', '2 h 1 min', '2 d 7 h')
    """
    if milliseconds < 1000:
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, unit in units:
        amount, seconds = divmod(seconds, size)
        if amount:
            parts.append(f"{amount} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def seconds(amount: float) -> str:
    """Return a short duration in seconds, to be compared with others in the same column.

    >>> seconds(0.0312), seconds(12.5)
    ('0.03 s', '12.50 s')
    """
    return f"{amount:.2f} s"


def mebibytes(amount: int) -> str:
    """Return an amount of memory or disk, given in MiB, with its unit.

    >>> mebibytes(512), mebibytes(8192), mebibytes(51200)
    ('512 MiB', '8 GiB', '50 GiB')
    """
    if amount < 1024:
        return f"{amount} MiB"
    return f"{amount / 1024:.1f}".removesuffix(".0") + " GiB"


def byte_size(amount: int) -> str:
    """Return a size, given in bytes, in its largest unit up to GiB.

    >>> byte_size(700), byte_size(1536), byte_size(30_000_000), byte_size(5 * 1024**3)
    ('700 B', '1.5 KiB', '28.6 MiB', '5 GiB')
    """
    size = float(amount)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " GiB"


def count(amount: float) -> str:
    """Return a number with its thousands separated, and with one decimal only if it is a fraction below 100.

    >>> count(1234567), count(2048.52), count(0.5)
    ('1\u202f234\u202f567', '2\u202f049', '0.5')
    """
    text = f"{amount:,.0f}" if amount >= 100 or amount == int(amount) else f"{amount:.1f}"
    return text.replace(",", "\u202f")


def backlog(left: Outstanding) -> str:
    """Return what a query has not read, for a cell of a table: a number alone is one of rows.

    >>> backlog(Outstanding(rows=1200)), backlog(Outstanding(files=12, size=3_565_158)), backlog(Outstanding())
    ('1\u202f200', '12 files, 3.4 MiB', '–')
    """
    if left.rows is not None and left == Outstanding(rows=left.rows):
        return count(left.rows)
    return backlog_text(left) or DASH


def backlog_text(left: Outstanding) -> str:
    """Return what a query has not read, as its sources count it, with the units; "" if none of them says.

    >>> backlog_text(Outstanding(rows=5, behind_ms=8000, unknown=1))
    '5 rows, 8 s behind, 1 source unknown'
    """
    if not left.is_known:
        return ""
    told = (
        "" if left.rows is None else _counted(left.rows, "row"),
        "" if left.files is None else _counted(left.files, "file"),
        "" if left.size is None else byte_size(left.size),
        "" if left.behind_ms is None else f"{span(left.behind_ms)} behind",
        f"{_counted(left.unknown, 'source')} unknown" if left.unknown else "",
    )
    return ", ".join(each for each in told if each)


def _counted(amount: int, noun: str) -> str:
    return f"{count(amount)} {noun}{'' if amount == 1 else 's'}"


def short_id(identifier: str) -> str:
    """Return the first 8 characters of an id, enough to tell a few ids apart."""
    return identifier[:8]


def capitalize_first(text: str) -> str:
    """Return the text with its first letter in upper case, and the rest unchanged.

    >>> capitalize_first("the attempt waits for Spark")
    'The attempt waits for Spark'
    """
    return text[:1].upper() + text[1:]
