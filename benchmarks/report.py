"""What was measured, for people: tables on the terminal, charts for the docs."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from headgate.core import Core, Settings
from headgate.lease import Request, Wanted, admit
from headgate.limit import Limit
from tests.simulation.engine import Engine

if TYPE_CHECKING:
    from rich.console import Console

OURS, PEER = "headgate", "peer"
COLOURS = {OURS: "#1b7f5c", PEER: "#b0b7bf"}
Results = Mapping[str, Any]


def ratios(results: Results) -> dict[str, float | None]:
    """The figures that the run is judged by. None where either side has none."""
    warm, peers = _scenario(results, OURS, "warm"), _scenario(results, PEER, "warm")
    writes = "write_units"
    found = {
        "requests_warm": warm.get("requests"),
        "requests_refill_due": _scenario(results, OURS, "refill_due").get("requests"),
        "requests_idle": _scenario(results, OURS, "idle").get("requests"),
        "requests_grid_mean": results["grid_mean"],
        "wru_ratio_client": _over(warm.get(writes), peers.get(writes)),
        "wru_ratio_aggregator": _between(results["aggregator"], writes),
        "cpu_ratio_sync": _between(results["cpu_us"], "sync"),
        "cpu_ratio_async": _between(results["cpu_us"], "async"),
        "import_ratio": _between(results["start_ms"], "client"),
        "throughput_ratio_async100": _between(results["throughput"]["100 tasks"], "rate"),
        "throughput_ratio_cascade_threads": _between(
            results["throughput"]["32 threads, cascade"], "rate"
        ),
        "layer_kb": results["layer_kb"],
    }
    return {name: None if value is None else round(value, 3) for name, value in found.items()}


def _scenario(results: Results, who: str, name: str, limits: int = 2) -> dict[str, Any]:
    for row in results["scenarios"]:
        if (row["who"], row["scenario"], row["limits"]) == (who, name, limits):
            return dict(row)
    return {}


def _between(both: Mapping[str, Mapping[str, Any]], key: str) -> float | None:
    return _over(both[OURS].get(key), both[PEER].get(key))


def _over(ours: float | None, peers: float | None) -> float | None:
    return None if ours is None or not peers else ours / peers


def memory_of_an_entity(count: int = 2_000) -> int:
    """Bytes that a process remembers of one entity."""
    limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
    core = Core(Settings(table="table", namespace_id="namespace-x", limits=limits))
    core.clock.observe("Thu, 01 Jan 2026 00:00:00 GMT", core.clock.raw(), core.clock.raw())
    table = Engine()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        flow = admit(core, Wanted((Request(f"entity-{number:029d}", "api", {"rpm": 1}),)))
        outcomes: Any = None
        while True:
            try:
                calls: Any = next(flow) if outcomes is None else flow.send(outcomes)
            except StopIteration:
                break
            outcomes = [table.send(call) for call in calls]
        table.items.clear()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used // count


def show(results: Results, console: Console) -> None:
    """Tables."""
    console.print(_scenarios(results["scenarios"]))
    grid = Table(title="requests per acquire, several clients of one bucket (simulated)")
    loads = sorted({cell["load"] for cell in results["grid"]})
    for heading in ("clients", *(f"{load} % of the limit" for load in loads)):
        grid.add_column(heading, justify="right")
    for clients in sorted({cell["clients"] for cell in results["grid"]}):
        row = [c["requests"] for c in results["grid"] if c["clients"] == clients]
        grid.add_row(str(clients), *(f"{value:.2f}" for value in row))
    console.print(grid)
    rest = Table(title="against the peer")
    for heading in ("", OURS, PEER, "ratio"):
        rest.add_column(heading, justify="left" if not heading else "right")
    for name, both, key in _pairs(results):
        ours, peers = both[OURS].get(key), both[PEER].get(key)
        rest.add_row(name, _cell(ours, both[OURS]), _cell(peers, both[PEER]), _ratio(ours, peers))
    console.print(rest)
    console.print(
        f"layer {results['layer_kb']} KB; {results['bytes_per_entity']} bytes for an entity"
    )


def _scenarios(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="an acquire, by scenario")
    for heading in (
        "scenario", "limits", "who", "requests", "write units", "read units", "$ per million",
        "p50 ms", "p99 ms",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("scenario", "who") else "right")
    for row in rows:
        first = (row["scenario"].replace("_", " "), str(row["limits"]), row["who"])
        if "failed" in row:
            table.add_row(*first, f"[red]{escape(row['failed'])[:60]}[/]")
            continue
        keys = ("requests", "write_units", "read_units", "dollars_per_million", "p50_ms", "p99_ms")
        table.add_row(*first, *(f"{row[key]:.2f}" for key in keys))
    return table


def _pairs(results: Results) -> list[tuple[str, Mapping[str, Any], str]]:
    rows = [
        ("aggregator, write units an acquire", results["aggregator"], "write_units"),
        ("CPU of an acquire, sync, µs", results["cpu_us"], "sync"),
        ("CPU of an acquire, async, µs", results["cpu_us"], "async"),
        ("import, ms", results["start_ms"], "import"),
        ("import to a client, ms", results["start_ms"], "client"),
        ("import to a first acquire, ms", results["start_ms"], "acquire"),
    ]
    for name, both in results["throughput"].items():
        rows.append((f"acquires a second, {name}, 20 ms away", both, "rate"))
    return rows


def _cell(value: float | None, row: Mapping[str, Any]) -> str:
    return f"{value:,.2f}" if value is not None else escape(str(row.get("failed", "-")))[:40]


def _ratio(ours: float | None, peers: float | None) -> str:
    ratio = _over(ours, peers)
    return "-" if ratio is None else f"{ratio:.2f}"


def store(results: Results, file: Path, docs: Path) -> None:
    """The figures as JSON, and the charts."""
    file.write_text(json.dumps(results, indent=1) + "\n")
    docs.mkdir(exist_ok=True)
    scenarios = sorted({row["scenario"] for row in results["scenarios"]})
    charts = {
        "bench-requests.svg": (
            "requests of one acquire (2 limits)",
            [(name.replace("_", " "), *_both(results, name, "requests")) for name in scenarios],
        ),
        "bench-dollars.svg": (
            "dollars for a million acquires, client only (2 limits)",
            [
                (name.replace("_", " "), *_both(results, name, "dollars_per_million"))
                for name in scenarios
            ],
        ),
        "bench-throughput.svg": (
            "acquires a second, engine 20 ms away",
            [
                (name, both[OURS].get("rate"), both[PEER].get("rate"))
                for name, both in results["throughput"].items()
            ],
        ),
    }
    for name, (title, rows) in charts.items():
        (docs / name).write_text(chart(title, rows))


def _both(results: Results, name: str, key: str) -> tuple[float | None, float | None]:
    return _scenario(results, OURS, name).get(key), _scenario(results, PEER, name).get(key)


def chart(title: str, rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Two bars for each row. Text takes its colour from where it is shown."""
    left, width, line = 170, 380, 44
    most = max([value for _, *both in rows for value in both if value] or [1.0])
    height = 60 + line * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(_described(rows))}</desc>",
        '<g font-family="system-ui, sans-serif" font-size="13" fill="#57606a">',
        f'<text x="0" y="18" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    for number, who in enumerate((OURS, PEER)):
        x = left + number * 110
        out.append(f'<rect x="{x}" y="30" width="10" height="10" fill="{COLOURS[who]}"/>')
        label = "Headgate" if who == OURS else "zae-limiter"
        out.append(f'<text x="{x + 15}" y="40">{label}</text>')
    for number, (name, *both) in enumerate(rows):
        top = 54 + number * line
        out.append(f'<text x="0" y="{top + 20}">{escape(name)}</text>')
        for at, (who, value) in enumerate(zip((OURS, PEER), both, strict=True)):
            y = top + at * 17
            long = 0 if not value else max(1.0, value / most * width)
            out.append(
                f'<rect x="{left}" y="{y}" width="{long:.1f}" height="14" fill="{COLOURS[who]}"/>'
            )
            text = "failed" if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")
            out.append(f'<text x="{left + long + 6:.1f}" y="{y + 11}">{text}</text>')
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


def _described(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """The chart in words, for whoever does not see it."""

    def told(value: float | None) -> str:
        return "failed" if value is None else f"{value:,.2f}"

    return "; ".join(
        f"{n}: Headgate {told(ours)}, zae-limiter {told(peer)}" for n, ours, peer in rows
    )
