"""A chart shows its values, whatever it is drawn as."""

from __future__ import annotations

from io import BytesIO

from PIL import Image

from headgate.cli.plot import Series, png, svg

SERIES = Series("rpm of alice, hourly", tuple((f"{hour:02}:00", hour * 3) for hour in range(24)))
BAR = (0x2C, 0x7A, 0x9B)


def test_bars_of_the_picture_are_as_tall_as_their_values():
    image = Image.open(BytesIO(png(SERIES)))
    tall = []
    for position in range(24):
        x = (70 + position * 24 + 3 + 9) * 2
        tall.append(sum(image.getpixel((x, y)) == BAR for y in range(100, 580)))
    assert tall == [hour * 3 * 480 // 69 for hour in range(24)]


def test_pictures_of_nothing_and_of_debts_are_pictures():
    for points in ((), (("00:00", 0),), (("00:00", -5), ("01:00", 2))):
        series = Series("nothing", points)
        assert svg(series).startswith("<svg")
        assert Image.open(BytesIO(png(series))).format == "PNG"
