"""The figures as they stand in docs/benchmarks.md and in the readme, between their markers.

python -m benchmarks.page    # writes them again from results.json
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import OURS, PEER, over, pairs, rate_figures, scenario

END = "<!-- end of figures -->"
Results = Mapping[str, Any]
Row = Mapping[str, Any]
# What each ratio is, and where it should be.
TARGETS = {
    "requests_warm": ("requests of a warm acquire", "1.00"),
    "requests_refill_due": ("requests where a refill is due", "1.00"),
    "requests_idle": ("requests of a bucket that was idle", "1.00"),
    "requests_grid_mean": ("requests, mean over the simulated grid", "at most 1.15"),
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


def ratios(results: Results) -> str:
    """What the run is judged by, and where it ran."""
    machine = results["machine"]
    where = ", ".join(
        [
            f"Python {machine['python']}",
            machine["system"],
            machine["processor"],
            f"{machine['cores']} cores",
        ]
    )
    rows = [
        [TARGETS[name][0], number(value), TARGETS[name][1]]
        for name, value in results["ratios"].items()
    ]
    ran = f"`{machine['command']}`, {machine['seconds']} s. {where}."
    return f"{ran}\n\n{table(['figure', 'this run', 'target'], rows)}"


def scenarios(results: Results) -> str:
    """Every scenario with every number of limits; both contenders in each cell."""
    rows = results["scenarios"]
    columns = {
        "requests": "requests",
        "write units": "write_units",
        "read units": "read_units",
        "$ per million": "dollars_per_million",
        "p50 ms": "p50_ms",
        "p99 ms": "p99_ms",
    }
    made = []
    for name, limits in dict.fromkeys((row["scenario"], row["limits"]) for row in rows):
        by = {who: scenario(results, who, name, limits) for who in (OURS, PEER)}
        said = [f"{label}: {text}" for label, text in _remarks(by) if text]
        cells = [both(by[OURS].get(key), by[PEER].get(key)) for key in columns.values()]
        made.append([name.replace("_", " "), str(limits), *cells, "; ".join(said)])
    return table(["scenario", "limits", *columns, "wrong"], made)


def _remarks(by: Mapping[str, Row]) -> list[tuple[str, str]]:
    names = {OURS: "Headgate", PEER: "zae-limiter"}
    return [
        (names[who], str(row.get("failed") or row.get("wrong") or "").replace("|", "/"))
        for who, row in by.items()
    ]


def grid(results: Results) -> str:
    """Several clients, on the engine and simulated."""
    rows = results["clients"]
    made = []
    for clients, load in dict.fromkeys((row["clients"], row["load"]) for row in rows):
        by = {r["who"]: r for r in rows if (r["clients"], r["load"]) == (clients, load)}
        cells = [
            both(by[OURS].get(key), by[PEER].get(key))
            for key in ("requests", "write_units", "read_units", "p50_ms", "p99_ms")
        ]
        admitted = " / ".join(_admitted(by[who]) for who in (OURS, PEER))
        made.append([str(clients), f"{load} %", *cells, admitted])
    means = results["clients_mean"]
    head = "clients,load,requests,write units,read units,p50 ms,p99 ms,admitted of bound"
    simulated = results["grid"]
    loads = sorted({cell["load"] for cell in simulated})
    return "\n\n".join(
        [
            table(head.split(","), made),
            f"The mean of the requests over these cells: {both(means[OURS], means[PEER])}.",
            f"Simulated, Headgate only; the mean is {number(results['grid_mean'])}:",
            table(
                ["clients", *(f"{load} %" for load in loads)],
                [
                    [
                        str(clients),
                        *(number(c["requests"]) for c in simulated if c["clients"] == clients),
                    ]
                    for clients in sorted({cell["clients"] for cell in simulated})
                ],
            ),
        ]
    )


def _admitted(row: Row) -> str:
    if "admitted" not in row:
        return "failed"
    text = f"{row['admitted']:.0f} of {row['bound']:.0f}"
    beyond = max(0.0, row.get("excess", 0.0))
    errors = sum(row.get("errors", {}).values())
    more = [f"{beyond:.1f} beyond"] if not row.get("held", True) else []
    more += [f"{errors} errors"] if errors else []
    return f"{text} ({', '.join(more)})" if more else text


def overhead(results: Results) -> str:
    """CPU, start, memory and throughput."""
    rows = []
    for name, figures, key in pairs(results):
        ours, peers = figures[OURS].get(key), figures[PEER].get(key)
        rows.append([name, number(ours), number(peers), number(over(ours, peers))])
    return table(["", "Headgate", "zae-limiter", "ratio"], rows)


def entities(results: Results) -> str:
    """Scale by the number of entities: on the engine, and by the meter."""
    measured = [
        [
            f"{row['entities']:,}",
            *(
                number(row[key])
                for key in (
                    "warm_requests", "warm_write_units", "warm_read_units", "warm_p50_ms",
                    "warm_p99_ms", "cold_requests", "cold_write_units", "cold_p50_ms",
                    "cold_p99_ms", "update_p50_ms", "get_p50_ms", "warm_of_update",
                    "cold_of_update",
                )
            ),
        ]
        for row in results["entities"]
    ]  # fmt: skip
    head = (
        "entities,requests,write units,read units,p50 ms,p99 ms,new: requests,new: write units,"
        "new: p50 ms,new: p99 ms,bare UpdateItem ms,bare GetItem ms,p50 / bare,new: p50 / bare"
    )
    billed = [
        [f"{row['entities']:,}", str(row["item_bytes"]), number(row["write_units"])]
        for row in results["entities_metered"]
    ]
    return "\n\n".join(
        [
            table(head.split(","), measured),
            "By the meter, the last of so many entities:",
            table(["entities", "bytes of the item", "write units of a warm acquire"], billed),
        ]
    )


def rates(results: Results) -> str:
    """Scale by the rate of one bucket."""
    rows = []
    for row in results["rates"]:
        steady, ramp, figures = row["steady"], row["ramp"], rate_figures(row)
        rows.append(
            [
                f"{row['rate']:,}",
                f"{row['load']} %",
                str(row["shards"]),
                f"{row['admitted']:,.0f} of {row['bound']:,.0f}",
                number(max(0.0, row["excess"])),
                number(row["allowance"]),
                number(figures["per_acquire"]),
                number(figures["units"]),
                _of(steady, "rejected"),
                _of(steady, "false"),
                f"{steady['throttled']:,}",
                _of(ramp, "false"),
                f"{ramp['throttled']:,}",
            ]
        )
    head = (
        "a second,offered,shards,admitted of bound,beyond it,allowed,requests,write units,"
        "rejected,with tokens left,throttled,splitting: with tokens left,splitting: throttled"
    )
    return table(head.split(","), rows)


def _of(phase: Row, key: str) -> str:
    share = phase[key] / max(1, phase["acquires"])
    return f"{phase[key]:,} ({share:.0%})" if phase[key] else "0"


def readme(results: Results) -> str:
    """The small table."""
    rows = []
    for name, said in (
        ("warm", "warm"),
        ("refill_due", "a refill is due"),
        ("idle", "idle, full"),
        ("first", "first of an entity"),
    ):
        ours, peers = scenario(results, OURS, name), scenario(results, PEER, name)
        keys = ("requests", "write_units", "dollars_per_million")
        rows.append([said, *(both(ours.get(key), peers.get(key)) for key in keys)])
    machine = results["machine"]
    return (
        f"One run of `{machine['command']}` ({machine['cores']} cores, Python "
        f"{machine['python']}), Headgate / zae-limiter 0.17.0:\n\n"
        + table(["", "requests", "write units", "dollars a million"], rows)
    )


SECTIONS: dict[str, Callable[[Results], str]] = {
    section.__name__: section
    for section in (ratios, scenarios, grid, overhead, entities, rates, readme)
}


def number(value: float | None) -> str:
    """With as many digits as mean anything."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.2f}"


def both(ours: float | None, peers: float | None) -> str:
    """Headgate's, then the peer's."""
    return " / ".join("failed" if value is None else number(value) for value in (ours, peers))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As Markdown has it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str, results: Results) -> str:
    """A page with the figures of each section that it has markers of."""
    for name, section in SECTIONS.items():
        begin = f"<!-- figures of make bench: {name} -->"
        before, found, rest = text.partition(begin)
        if found:
            _, _, after = rest.partition(END)
            text = f"{before}{begin}\n\n{section(results)}\n\n{END}{after}"
    return text


def write(results: Results, *pages: Path) -> None:
    """Puts the figures where the pages have them."""
    for page in pages:
        page.write_text(filled(page.read_text(), results))


if __name__ == "__main__":
    from benchmarks.lab import HERE, ROOT
    from benchmarks.report import store

    stored = json.loads((HERE / "results.json").read_text())
    store(stored, HERE / "results.json", ROOT / "docs")
    write(stored, ROOT / "docs/benchmarks.md", ROOT / "README.md")
