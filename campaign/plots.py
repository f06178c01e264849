"""Plots of a report as SVG, which a browser and a repository's page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

ROW, LEFT, WIDTH, FONT = 18, 160, 620, "font: 11px sans-serif"
INK, PALE, STRONG = "#222", "#9bb8d3", "#1f5f8b"


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" style="{FONT}">'
    )
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"]
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'


def spans(title: str, rows: Mapping[str, tuple[float, float, float, float]], unit: str) -> str:
    """Draw for each row a line from the least to the largest value, a bar from the median to the 90th percentile."""
    most = max((row[3] for row in rows.values()), default=1.0) or 1.0
    scale = (WIDTH - 60) / most
    parts = [_text(8, 16, title)]
    for number, (name, (least, median, high, largest)) in enumerate(rows.items()):
        y = 40 + ROW * number
        parts += [
            _text(LEFT - 8, y + 4, name, "end"),
            f'<line x1="{LEFT + least * scale:.1f}" x2="{LEFT + largest * scale:.1f}" y1="{y}" y2="{y}" '
            f'stroke="{PALE}" stroke-width="2"/>',
            f'<rect x="{LEFT + median * scale:.1f}" y="{y - 5}" width="{max(2.0, (high - median) * scale):.1f}" '
            f'height="10" fill="{STRONG}"/>',
            _text(LEFT + largest * scale + 4, y + 4, f"{largest:.1f} {unit}"),
        ]
    return _svg(LEFT + WIDTH, 50 + ROW * len(rows), title, parts)


def grid(title: str, rows: Sequence[str], columns: Sequence[str], counts: Mapping[tuple[str, str], int]) -> str:
    """Draw a table whose cells are the darker the more often both happened together; never: an empty cell."""
    most = max(counts.values(), default=1) or 1
    cell = 26
    parts = [_text(8, 16, title)]
    parts += [_text(LEFT + cell * at + cell / 2, 40, column, "middle") for at, column in enumerate(columns)]
    for number, row in enumerate(rows):
        y = 48 + ROW * number
        parts.append(_text(LEFT - 8, y + 13, row, "end"))
        for at, column in enumerate(columns):
            count = counts.get((row, column), 0)
            shade = f'fill="{STRONG}" fill-opacity="{0.25 + 0.75 * count / most:.2f}"' if count else 'fill="none"'
            parts.append(
                f'<rect x="{LEFT + cell * at}" y="{y}" width="{cell - 2}" height="{ROW - 2}" {shade} stroke="#ccc">'
                f"<title>{escape(row)}, {escape(column)}: {count}</title></rect>"
            )
    return _svg(LEFT + cell * len(columns) + 20, 60 + ROW * len(rows), title, parts)
