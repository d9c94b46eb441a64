"""Each kind of acquire, and the aggregator's share: counted and metered before the engine, timed
without the recorder.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from benchmarks import bound
from benchmarks.lab import PYTHON, Lab, latency

NAMES = "warm refill_due idle first cascade two_resources rejection adjust".split()
SLOW = ("refill_due", "idle")  # mostly waiting: all at once
LIMITS = (1, 2, 4, 8)


def table(lab: Lab) -> list[dict[str, Any]]:
    """A row for each scenario, number of limits and contender."""
    limits = (2,) if lab.quick else LIMITS
    plans = list(product(NAMES, limits, PYTHON))
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    slow = [plan for plan in plans if plan[0] in SLOW]
    with ThreadPoolExecutor(8) as pool:
        found |= zip(slow, pool.map(lambda plan: row(lab, *plan), slow), strict=True)
    for plan in plans:
        if plan not in found:
            found[plan] = row(lab, *plan)
    return [found[plan] for plan in plans]


def row(lab: Lab, name: str, limits: int, who: str) -> dict[str, Any]:
    """Counted in one pass, timed in another. A scenario that fails says how."""
    made: dict[str, Any] = {"who": who, "scenario": name, "limits": limits}
    times = (3 if name in SLOW else 20) if lab.quick else (5 if name in SLOW else 100)
    options = {"name": name, "limits": limits, "times": times}
    counted, recorder, meter = lab.recorded(who, "scenario", **options)
    timed = lab.work(who, "scenario", **options)
    for found in (counted, timed):
        if "failed" in found:
            return made | {"failed": found["failed"]}
    if not counted["seconds"] or not timed["seconds"]:
        return made | {"failed": "nothing was rejected"}
    made |= meter.session(recorder.chapter("measured")).per(len(counted["seconds"]))
    return made | latency(timed["seconds"]) | _judged(timed)


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """The worst of what was admitted from one bucket, against its bound."""
    if not found.get("draws"):
        return {}
    capacity, amount, period = found["shape"]
    judged = [
        bound.verdict(map(tuple, draws), capacity, amount / period, found["longest"])
        for draws in found["draws"].values()
    ]
    worst = max((one for one in judged if one), key=lambda one: one.excess - one.allowance)
    made = {"excess": worst.excess, "allowance": worst.allowance}
    if not worst.held:
        made["wrong"] = f"{worst.excess + capacity:.0f} admitted at once where {capacity} may be"
    return made


def aggregator(lab: Lab) -> dict[str, Any]:
    """What the stream's processor writes for each acquire."""
    count, both = 100, {}
    for who in PYTHON:
        found, recorder, meter = lab.recorded(who, "aggregate", acquires=count)
        if "failed" not in found:
            found |= meter.session(recorder.chapter("measured")).per(count)
        both[who] = found
    return both
