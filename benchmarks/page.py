"""The figures as they stand in docs/benchmarks.md, between its two markers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"
OURS, PEER = "headgate", "peer"
# What each ratio is, and where it should be.
TARGETS = {
    "requests_warm": ("requests of a warm acquire", "1.00"),
    "requests_refill_due": ("requests where a refill is due", "1.00"),
    "requests_idle": ("requests of a bucket that was idle", "1.00"),
    "requests_grid_mean": ("requests, mean over the grid of clients and loads", "at most 1.15"),
    "wru_ratio_client": ("write units of a warm acquire, of the peer's", "at most 0.5"),
    "wru_ratio_aggregator": ("write units of the aggregator, of the peer's", "at most 0.1"),
    "cpu_ratio_sync": ("CPU of an acquire over sockets, blocking, of the peer's", "at most 0.25"),
    "cpu_ratio_async": ("CPU of an acquire over sockets, asyncio, of the peer's", "at most 0.25"),
    "import_ratio": ("import to a first client, of the peer's", "at most 0.4"),
    "throughput_ratio_async100": ("acquires a second, 100 tasks, over the peer's", "at least 5"),
    "throughput_ratio_cascade_threads": (
        "acquires a second, 32 threads, cascade, over the peer's",
        "at least 20",
    ),
    "layer_kb": ("the layer, KB", "-"),
}
COLUMNS = {
    "requests": "requests",
    "write_units": "write units",
    "read_units": "read units",
    "dollars_per_million": "$ per million",
}


def figures(results: Mapping[str, Any]) -> str:
    """The tables."""
    machine = results["machine"]
    where = f"Python {machine['python']}, {machine['system']}, {machine['cores']} cores"
    return "\n\n".join(
        [
            f"`{machine['command']}`, {where}, {machine['seconds']} s.",
            _table(
                ["figure", "this run", "target"],
                [
                    [TARGETS[name][0], _number(value), TARGETS[name][1]]
                    for name, value in results["ratios"].items()
                ],
            ),
            "An acquire with two limits, Headgate / zae-limiter, as counted and metered:",
            _table(["scenario", *COLUMNS.values()], _scenarios(results["scenarios"])),
            "Requests per acquire, several clients of one bucket:",
            _table(["clients", *_loads(results)], _grid(results)),
        ]
    )


def _scenarios(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    chosen = [row for row in rows if row["limits"] == 2]
    names = list(dict.fromkeys(row["scenario"] for row in chosen))
    found = []
    for name in names:
        by = {row["who"]: row for row in chosen if row["scenario"] == name}
        cells = [
            " / ".join(
                _number(by[who][key]) if key in by[who] else "failed" for who in (OURS, PEER)
            )
            for key in COLUMNS
        ]
        found.append([name.replace("_", " "), *cells])
    return found


def _loads(results: Mapping[str, Any]) -> list[str]:
    return [f"{load} %" for load in sorted({cell["load"] for cell in results["grid"]})]


def _grid(results: Mapping[str, Any]) -> list[list[str]]:
    cells = results["grid"]
    return [
        [str(clients), *(_number(c["requests"]) for c in cells if c["clients"] == clients)]
        for clients in sorted({cell["clients"] for cell in cells})
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(results: Mapping[str, Any], page: Path) -> None:
    """Puts the figures where the page has them."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{figures(results)}\n\n{END}{after}")


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
