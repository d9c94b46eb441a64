"""Charts for the docs: SVG that says in words what it shows. Text is of a grey that can be read on
light and on dark; nothing is loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

GREEN, GREY, DARK = "#1b7f5c", "#b0b7bf", "#57606a"
BOTH = (("Headgate", GREEN), ("zae-limiter", GREY))
Series = Sequence[tuple[str, str]]  # name and colour
WIDTH = 640


def bars(
    title: str, rows: Sequence[tuple[str, Sequence[float | None]]], series: Series = BOTH
) -> str:
    """A bar of each series for every row; None is a failure."""
    left, width = 170, 380
    line = 10 + 17 * len(series)
    most = max([value for _, values in rows for value in values if value] or [1.0])
    out = _head(title, _in_words(rows, series), 60 + line * len(rows), series, left)
    for number, (name, values) in enumerate(rows):
        top = 54 + number * line
        out.append(f'<text x="0" y="{top + 3 + 17 * len(series) / 2:.0f}">{escape(name)}</text>')
        for at, ((_, colour), value) in enumerate(zip(series, values, strict=True)):
            y = top + at * 17
            long = 0 if not value else max(1.0, value / most * width)
            out.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="14" fill="{colour}"/>')
            out.append(f'<text x="{left + long + 6:.1f}" y="{y + 11}">{_short(value)}</text>')
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def lines(title: str, points: Sequence[int], values: Mapping[str, Sequence[float]]) -> str:
    """A line for each series over points that grow by factors."""
    colours = [GREEN, "#7cc4a8", GREY, DARK]
    series = list(zip(values, colours, strict=False))
    left, right, top, bottom = 44, 600, 60, 250
    most = max(max(each) for each in values.values()) * 1.15
    span = log10(points[-1] / points[0]) or 1.0

    def x(point: float) -> float:
        return left + log10(point / points[0]) / span * (right - left)

    def y(value: float) -> float:
        return bottom - value / most * (bottom - top)

    rows = [(f"{p:,}", [each[i] for each in values.values()]) for i, p in enumerate(points)]
    out = _head(title, _in_words(rows, series), 280, series, left)
    out.append(
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="{DARK}" stroke-width="1"/>'
    )
    out += [
        f'<text x="{x(point):.0f}" y="{bottom + 18}" text-anchor="middle">{point:,}</text>'
        for point in points
    ]
    out += [
        f'<text x="{left - 6}" y="{y(tick) + 4:.0f}" text-anchor="end">{_short(tick)}</text>'
        for tick in (0.0, most / 2, most)
    ]
    for (name, colour), each in zip(series, values.values(), strict=True):
        places = [f"{x(p):.1f},{y(v):.1f}" for p, v in zip(points, each, strict=True)]
        out.append(
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" '
            f'stroke-width="2.5"><title>{escape(name)}</title></polyline>'
        )
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def _head(title: str, words: str, height: int, series: Series, left: int) -> list[str]:
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(words)}</desc>",
        f'<g font-family="system-ui, sans-serif" font-size="13" fill="{DARK}">',
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for number, (name, colour) in enumerate(series):
        at = left + number * 130
        out.append(f'<rect x="{at}" y="30" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{at + 15}" y="40">{escape(name)}</text>')
    return out


def _short(value: float | None) -> str:
    if value is None:
        return "failed"
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".")


def _in_words(rows: Sequence[tuple[str, Sequence[float | None]]], series: Series) -> str:
    """The chart for whoever does not see it."""
    return "; ".join(
        f"{name}: "
        + ", ".join(
            f"{who} {_short(value)}" for (who, _), value in zip(series, values, strict=True)
        )
        for name, values in rows
    )
