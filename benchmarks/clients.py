"""Several clients of one bucket on the engine: both contenders, the same arrivals.

Two passes. One runs straight at the engine, as concurrent as the clients are: requests, latency and
what was admitted are its. The other has the recorder in between, which lets one request through at
a time: the units are its.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import bound
from benchmarks.lab import PYTHON, Lab, latency

CLIENTS = (1, 8, 50)
LOADS = (30, 60, 95, 150)


def table(lab: Lab) -> list[dict[str, Any]]:
    """A row for each number of clients, load and contender."""
    rows = []
    loads = [60, 150] if lab.quick else list(LOADS)
    for clients in CLIENTS[:2] if lab.quick else CLIENTS:
        options = {"clients": clients, "loads": loads, "seconds": 2.5 if lab.quick else 4.0}
        for who in PYTHON:
            timed = lab.work(who, "crowd", **options)
            counted, recorder, meter = lab.recorded(who, "crowd", **options)
            for position, load in enumerate(loads):
                made: dict[str, Any] = {"who": who, "clients": clients, "load": load}
                failed = timed.get("failed") or counted.get("failed")
                if failed:
                    rows.append(made | {"failed": failed})
                    continue
                made |= row(timed["cells"][position], timed["rate"])
                units = meter.session(recorder.chapter(f"load-{load}"))
                bill = units.per(max(1, counted["cells"][position]["acquires"]))
                made |= {name: bill[name] for name in ("write_units", "read_units")}
                rows.append(made)
    return rows


def row(cell: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """What was counted by the clients themselves. The capacity is a second's worth."""
    draws = [(when, amount) for when, amount in cell["draws"]]
    whole = bound.verdict(draws, rate, rate, cell["longest"])
    counted = bound.verdict([one for one in draws if one[0] >= cell["began"]], rate, rate)
    made: dict[str, Any] = {
        "acquires": cell["acquires"],
        "rejected": cell["rejected"],
        # Of those that sent any: a remembered rejection sends none, and must not flatter.
        "requests": cell["requests"] / max(1, cell["sent"]),
        "requests_of_all": cell["requests"] / max(1, cell["acquires"]),
        "admitted": counted.admitted if counted else 0,
        "bound": counted.bound if counted else 0,
        **latency(cell["seconds"]),
    }
    if whole:
        made |= {"excess": whole.excess, "allowance": whole.allowance, "held": whole.held}
    if cell["failed"]:
        made["errors"] = {text: cell["failed"].count(text) for text in set(cell["failed"])}
    return made


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Requests of an acquire that sent any; every cell counts the same."""
    found: dict[str, float | None] = {}
    for who in PYTHON:
        own = [one["requests"] for one in rows if one["who"] == who and "requests" in one]
        found[who] = statistics.mean(own) if own else None
    return found
