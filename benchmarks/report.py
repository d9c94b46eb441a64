"""What was measured, for people: tables on the terminal, charts for the docs, and the ratios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from benchmarks import chart

if TYPE_CHECKING:
    from rich.console import Console

OURS, PEER = "headgate", "peer"
Results = Mapping[str, Any]


def ratios(results: Results) -> dict[str, float | None]:
    """The figures that the run is judged by. None where either side has none."""
    warm, peers = scenario(results, OURS, "warm"), scenario(results, PEER, "warm")
    writes = "write_units"
    found = {
        "requests_warm": warm.get("requests"),
        "requests_refill_due": scenario(results, OURS, "refill_due").get("requests"),
        "requests_idle": scenario(results, OURS, "idle").get("requests"),
        "requests_grid_mean": results["grid_mean"],
        "wru_ratio_client": over(warm.get(writes), peers.get(writes)),
        "wru_ratio_aggregator": between(results["aggregator"], writes),
        "cpu_ratio_sync": between(results["cpu_us"], "sync"),
        "cpu_ratio_async": between(results["cpu_us"], "async"),
        "import_ratio": between(results["start_ms"], "client"),
        "throughput_ratio_async100": between(results["throughput"]["100 tasks"], "rate"),
        "throughput_ratio_cascade_threads": between(
            results["throughput"]["32 threads, cascade"], "rate"
        ),
        "layer_kb": results["layer_kb"],
    }
    return {name: None if value is None else round(value, 3) for name, value in found.items()}


def scenario(results: Results, who: str, name: str, limits: int = 2) -> dict[str, Any]:
    """One row of the scenarios; empty if it is not there."""
    for row in results["scenarios"]:
        if (row["who"], row["scenario"], row["limits"]) == (who, name, limits):
            return dict(row)
    return {}


def between(both: Mapping[str, Mapping[str, Any]], key: str) -> float | None:
    """Ours of the peer's."""
    return over(both[OURS].get(key), both[PEER].get(key))


def over(ours: float | None, peers: float | None) -> float | None:
    """A ratio, where there is one."""
    return None if ours is None or not peers else ours / peers


def pairs(results: Results) -> list[tuple[str, Mapping[str, Any], str]]:
    """What both have one figure of: its name, the figures, and their key."""
    cpu, start = results["cpu_us"], results["start_ms"]
    rows = [
        ("aggregator, write units an acquire", results["aggregator"], "write_units"),
        ("CPU of an acquire, sockets, sync, µs", cpu, "sync"),
        ("CPU of an acquire, sockets, async, µs", cpu, "async"),
        ("CPU of an acquire, no transport, sync, µs", cpu, "stub_sync"),
        ("CPU of an acquire, no transport, async, µs", cpu, "stub_async"),
        ("import, ms", start, "import"),
        ("import to a client, ms", start, "client"),
        ("import to a first acquire, ms", start, "acquire"),
        ("import to a client where the SDK is needed, ms", results["start_sdk_ms"], "client"),
        ("memory for an entity, bytes", results["memory"], "bytes"),
    ]
    for name, both in results["throughput"].items():
        rows.append((f"acquires a second, {name}, 20 ms away", both, "rate"))
    return rows


# ---------------------------------------------------------------- terminal


def show(results: Results, console: Console) -> None:
    """Tables."""
    console.print(
        _table(
            "an acquire, by scenario",
            results["scenarios"],
            {
                "scenario": "scenario", "limits": "limits", "who": "who", "requests": "requests",
                "write units": "write_units", "read units": "read_units",
                "$ per million": "dollars_per_million", "p50 ms": "p50_ms", "p99 ms": "p99_ms",
                "wrong": "wrong",
            },
        )
    )  # fmt: skip
    console.print(
        _table(
            "several clients of one bucket, on the engine",
            results["clients"],
            {
                "clients": "clients", "% of the limit": "load", "who": "who",
                "requests": "requests", "write units": "write_units", "read units": "read_units",
                "p50 ms": "p50_ms", "p99 ms": "p99_ms", "admitted": "admitted",
                "bound": "bound", "beyond it": "excess",
            },
        )
    )  # fmt: skip
    console.print(
        _table(
            "several clients of one bucket, simulated",
            results["grid"],
            {"clients": "clients", "% of the limit": "load", "requests": "requests"},
        )
    )
    console.print(
        _table(
            "entities in the table",
            results["entities"],
            {
                "entities": "entities", "requests": "cold_requests", "write units":
                "cold_write_units", "cold p50 ms": "cold_p50_ms", "cold p99 ms": "cold_p99_ms",
                "warm p50 ms": "warm_p50_ms", "warm p99 ms": "warm_p99_ms",
                "bare UpdateItem p50 ms": "update_p50_ms", "warm / bare": "warm_of_update",
            },
        )
    )  # fmt: skip
    console.print(_rates(results["rates"]))
    rest = Table(title="against the peer")
    for heading in ("", OURS, PEER, "ratio"):
        rest.add_column(heading, justify="left" if not heading else "right")
    for name, both, key in pairs(results):
        ours, peers = both[OURS].get(key), both[PEER].get(key)
        ratio = over(ours, peers)
        cells = [_cell(ours, both[OURS]), _cell(peers, both[PEER])]
        rest.add_row(name, *cells, "-" if ratio is None else f"{ratio:.2f}")
    console.print(rest)
    console.print(f"layer {results['layer_kb']} KB")


def _table(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    table = Table(title=title)
    for heading in columns:
        words = heading in ("scenario", "who", "wrong")
        table.add_column(heading, justify="left" if words else "right")
    for row in rows:
        cells = [_text(row.get(key)) for key in columns.values()]
        if "failed" in row:
            known = [cell for cell in cells if cell]
            cells = [*known, f"[red]{escape(row['failed'])[:60]}[/]"]
        table.add_row(*cells)
    return table


def _rates(rows: Sequence[Mapping[str, Any]]) -> Table:
    flat = [{**row["steady"], **row} | rate_figures(row) for row in rows]
    return _table(
        "one bucket's rate, simulated with the limits of partitions",
        flat,
        {
            "a second": "rate", "% of the limit": "load", "shards": "shards",
            "admitted": "admitted", "bound": "bound", "beyond it": "excess",
            "requests": "per_acquire", "write units": "units", "throttled": "throttled",
            "refused with tokens left": "false", "the same while splitting": "false_ramp",
        },
    )  # fmt: skip


def rate_figures(row: Mapping[str, Any]) -> dict[str, float]:
    """A simulated rate, by acquire."""
    ramp, steady = row["ramp"], row["steady"]
    return {
        "per_acquire": steady["requests"] / max(1, steady["acquires"]),
        "units": steady["write_units"] / max(1, steady["acquires"]),
        "false_ramp": ramp["false"],
        "throttled_ramp": ramp["throttled"],
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else str(value).replace("_", " ")


def _cell(value: float | None, row: Mapping[str, Any]) -> str:
    return f"{value:,.2f}" if value is not None else escape(str(row.get("failed", "-")))[:40]


# ---------------------------------------------------------------- files


def store(results: Results, file: Path, docs: Path) -> None:
    """The figures as JSON, and the charts."""
    docs.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1) + "\n")
    for name, drawn in charts(results).items():
        (docs / f"bench-{name}.svg").write_text(drawn)


def charts(results: Results) -> dict[str, str]:
    """By name."""
    names = list(dict.fromkeys(row["scenario"] for row in results["scenarios"]))
    sizes = results["entities"]
    loads = sorted({row["load"] for row in results["rates"]})
    by_rate = {(row["rate"], row["load"]): rate_figures(row) for row in results["rates"]}
    return {
        "requests": chart.bars(
            "requests of one acquire (2 limits)",
            [(name.replace("_", " "), _both(results, name, "requests")) for name in names],
        ),
        "dollars": chart.bars(
            "dollars for a million acquires, client only (2 limits)",
            [
                (name.replace("_", " "), _both(results, name, "dollars_per_million"))
                for name in names
            ],
        ),
        "throughput": chart.bars(
            "acquires a second, engine 20 ms away",
            [
                (name, [both[OURS].get("rate"), both[PEER].get("rate")])
                for name, both in results["throughput"].items()
            ],
        ),
        "grid": chart.bars("requests of one acquire, several clients", _cells(results["clients"])),
        "entities": chart.lines(
            "milliseconds of an acquire (median), by entities in the table",
            [row["entities"] for row in sizes],
            {
                "warm": [row["warm_p50_ms"] for row in sizes],
                "not seen before": [row["cold_p50_ms"] for row in sizes],
                "bare UpdateItem": [row["update_p50_ms"] for row in sizes],
            },
        ),
        "rates": chart.bars(
            "requests of one acquire, by the rate of one bucket (simulated)",
            [
                (f"{rate:,} a second", [by_rate[rate, load]["per_acquire"] for load in loads])
                for rate in sorted({row["rate"] for row in results["rates"]})
            ],
            [(f"{loads[0]} % of it", chart.GREEN), (f"{loads[-1]} % of it", "#7cc4a8")],
        ),
    }


def _both(results: Results, name: str, key: str) -> list[float | None]:
    return [scenario(results, who, name).get(key) for who in (OURS, PEER)]


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[float | None]]]:
    by = {(row["clients"], row["load"], row["who"]): row.get("requests") for row in rows}
    keys = list(dict.fromkeys((row["clients"], row["load"]) for row in rows))
    return [
        (
            f"{clients} client{'s' if clients > 1 else ''}, {load} %",
            [by.get((clients, load, who)) for who in (OURS, PEER)],
        )
        for clients, load in keys
    ]
