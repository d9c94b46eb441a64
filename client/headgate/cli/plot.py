"""Charts: of text for a terminal, of SVG for a page, of PNG for a message."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from io import BytesIO

from rich import box
from rich.table import Table
from rich.text import Text

_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR, _GAP, _HEIGHT, _LEFT, _BOTTOM, _TOP = 18, 6, 240, 70, 90, 50


@dataclass(frozen=True, slots=True)
class Series:
    """Values in order, each with its name."""

    title: str
    points: tuple[tuple[str, int], ...]

    @property
    def most(self) -> int:
        """The largest, and never nothing."""
        return max(1, *(value for _, value in self.points), 1)


def bars(series: Series) -> Table:
    """A bar for each value, to an eighth of a character."""
    table = Table(title=series.title, box=box.SIMPLE, show_header=False, title_justify="left")
    table.title_style = "bold"
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for label, value in series.points:
        eighths = max(0, value) * _WIDTH * 8 // series.most
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        table.add_row(label, Text(bar, style="cyan"), f"{value:,}")
    return table


def svg(series: Series) -> str:
    """The same as a picture that stands alone."""
    count = len(series.points)
    width = _LEFT + count * (_BAR + _GAP) + 30
    height = _TOP + _HEIGHT + _BOTTOM
    base = _TOP + _HEIGHT
    box_ = f'width="{width}" height="{height}"'
    font = 'font-family="system-ui, sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box_} viewBox="0 0 {width} {height}" {font}>',
        f"<title>{escape(series.title)}</title>",
        f"<desc>{count} values, the largest {series.most:,}</desc>",
        f'<rect {box_} fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="24" font-size="14" fill="#1f2933">{escape(series.title)}</text>',
    ]
    for quarter in range(5):
        y = base - _HEIGHT * quarter // 4
        value = series.most * quarter // 4
        parts += [
            f'<line x1="{_LEFT}" x2="{width - 20}" y1="{y}" y2="{y}" stroke="#d9e2ec"/>',
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#52606d">{value:,}</text>',
        ]
    every = max(1, count // 24)
    for position, (label, value) in enumerate(series.points):
        x = _LEFT + position * (_BAR + _GAP) + _GAP // 2
        tall = max(0, value) * _HEIGHT // series.most
        parts.append(
            f'<rect x="{x}" y="{base - tall}" width="{_BAR}" height="{tall}" fill="#2c7a9b">'
            f"<title>{escape(label)}: {value:,}</title></rect>"
        )
        if position % every == 0:
            middle = x + _BAR // 2
            parts.append(
                f'<text x="{middle}" y="{base + 14}" text-anchor="end" fill="#52606d" '
                f'transform="rotate(-45 {middle} {base + 14})">{escape(label)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def png(series: Series) -> bytes:
    """The same in pixels, twice as many as SVG's so that it is sharp."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - only who draws loads it

    scale, count = 2, len(series.points)
    width = (_LEFT + count * (_BAR + _GAP) + 30) * scale
    height, base = (_TOP + _HEIGHT + _BOTTOM) * scale, (_TOP + _HEIGHT) * scale
    image = Image.new("RGB", (width, height), "#ffffff")
    draw = ImageDraw.Draw(image)
    small, large = ImageFont.load_default(11 * scale), ImageFont.load_default(14 * scale)
    draw.text((_LEFT * scale, 10 * scale), series.title, fill="#1f2933", font=large)
    for quarter in range(5):
        y = base - _HEIGHT * scale * quarter // 4
        draw.line((_LEFT * scale, y, width - 20 * scale, y), fill="#d9e2ec", width=scale)
        mark = f"{series.most * quarter // 4:,}"
        draw.text(((_LEFT - 8) * scale, y), mark, fill="#52606d", font=small, anchor="rm")
    every = max(1, count // 24)
    for position, (label, value) in enumerate(series.points):
        x = (_LEFT + position * (_BAR + _GAP) + _GAP // 2) * scale
        tall = max(0, value) * _HEIGHT * scale // series.most
        if tall:
            draw.rectangle((x, base - tall, x + _BAR * scale - 1, base - 1), fill="#2c7a9b")
        if position % every == 0:
            long = int(draw.textlength(label, font=small)) + 2 * scale
            name = Image.new("RGBA", (long, 16 * scale), (0, 0, 0, 0))
            ImageDraw.Draw(name).text((0, 0), label, fill="#52606d", font=small)
            turned = name.rotate(45, expand=True)
            at = (x + _BAR * scale // 2 - turned.width + 8 * scale, base + 4 * scale)
            image.paste(turned, at, turned)
    stored = BytesIO()
    image.save(stored, "PNG")
    return stored.getvalue()
