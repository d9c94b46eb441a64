"""Charts and pages say what was measured: all of it from the one run that is stored."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from benchmarks import chart, clients, page, report
from benchmarks.entities import METERED, metered
from benchmarks.lab import HERE, ROOT, latency, medians

SPACE = "{http://www.w3.org/2000/svg}"
NAMES = (
    "requests_warm requests_refill_due requests_idle requests_grid_mean wru_ratio_client "
    "wru_ratio_aggregator cpu_ratio_sync cpu_ratio_async import_ratio throughput_ratio_async100 "
    "throughput_ratio_cascade_threads layer_kb"
).split()


@pytest.fixture(scope="module")
def results():
    return json.loads((HERE / "results.json").read_text())


def parsed(svg):
    root = ET.fromstring(svg)  # noqa: S314 - our own
    return root.find(f"{SPACE}title").text, root.find(f"{SPACE}desc").text, root


def test_a_chart_of_bars_says_in_words_what_it_shows():
    title, words, root = parsed(chart.bars("a < b", [("one", [1.0, 4.5]), ("two", [2.0, None])]))
    assert title == "a < b"
    assert words == "one: Headgate 1, zae-limiter 4.5; two: Headgate 2, zae-limiter failed"
    widths = [float(bar.get("width")) for bar in root.iter(f"{SPACE}rect")][2:]
    assert widths[1] == max(widths)
    assert widths[3] == 0


def test_a_chart_of_lines_says_in_words_what_it_shows():
    svg = chart.lines("ms", [1, 10, 1_000], {"cold": [1.0, 1.1, 1.2], "warm": [1.0, 1.0, 1.0]})
    _, words, root = parsed(svg)
    assert words.endswith("1,000: cold 1.2, warm 1")
    assert len(list(root.iter(f"{SPACE}polyline"))) == 2


def test_what_failed_has_no_ratio():
    assert report.between({"headgate": {"rate": 2.0}, "peer": {"failed": "x"}}, "rate") is None
    assert medians([{"rate": 1.0}, {"failed": "x"}]) == {"failed": "x"}


def test_latency_is_the_middle_and_the_slowest_of_a_hundred():
    found = latency([number / 1000 for number in range(1, 101)])
    assert found == pytest.approx({"p50_ms": 50.5, "p99_ms": 100})
    assert latency([]) == {}


def test_a_cell_counts_requests_of_acquires_that_sent_any():
    cell = {
        "began": 10.0, "draws": [(1.0, 1), (10.5, 1), (11.0, 1)], "longest": 0.01, "failed": [],
        "acquires": 4, "sent": 3, "requests": 6, "rejected": 2, "seconds": [0.001] * 3,
    }  # fmt: skip
    row = clients.row(cell, 40)
    assert (row["requests"], row["requests_of_all"]) == (2, 1.5)
    assert row["admitted"] == 2
    assert row["bound"] == pytest.approx(40 + 0.5 * 40)
    assert row["held"]


def test_an_id_of_a_million_costs_what_the_first_does():
    rows = metered()
    assert [row["entities"] for row in rows] == list(METERED)
    assert {row["write_units"] for row in rows} == {1}
    assert rows[-1]["item_bytes"] < 1_024


def test_the_stored_run_has_every_ratio(results):
    assert list(report.ratios(results)) == NAMES
    assert report.ratios(results) == results["ratios"]


def test_pages_and_charts_are_those_of_the_stored_run(results):
    for file in ("docs/benchmarks.md", "README.md"):
        text = (ROOT / file).read_text()
        assert page.filled(text, results) == text, f"{file}: python -m benchmarks.page"
    for name, drawn in report.charts(results).items():
        assert (ROOT / f"docs/bench-{name}.svg").read_text() == drawn, name


def test_the_page_has_all_sections():
    text = (ROOT / "docs/benchmarks.md").read_text() + (ROOT / "README.md").read_text()
    for name in page.SECTIONS:
        assert text.count(f"<!-- figures of make bench: {name} -->") == 1, name


def test_the_peer_is_pinned_with_all_that_it_needs():
    lines = (ROOT / "constraints-peer.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "zae-limiter==0.17.0" in pins
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin)] == []
