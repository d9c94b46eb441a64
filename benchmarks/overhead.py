"""What a client costs the process that it is in: CPU, start, memory, size; and what it can do."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lab import PYTHON, REPLAYED, ROOT, Lab, medians, run, work

DELAY = 20  # milliseconds to the engine and back
# A setting that only the SDK understands, so that it has to be loaded.
SDK_NEEDED = {"AWS_RETRY_MODE": "standard"}
CROWDS = (
    ("10 tasks", 10, 0, "alice"),
    ("100 tasks", 100, 0, "alice"),
    ("1,000 tasks", 1_000, 0, "alice"),
    ("100 tasks, cascade", 100, 0, "child"),
    ("32 threads", 0, 32, "alice"),
    ("32 threads, cascade", 0, 32, "child"),
)


def cpu_and_start(lab: Lab) -> dict[str, Any]:
    """In short turns, one contender after the other, and the median of them: what else the machine
    does falls on both.
    """
    turns, times = 3 if lab.quick else 9, 1_000
    # As an installation does, which the peer's is.
    compileall.compile_dir(ROOT / "client/headgate", quiet=2)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {who: [] for who in PYTHON} for name in ("cpu_us", "start_ms", "start_sdk_ms")
    }
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for who in PYTHON:
                with lab.replay(who) as url:
                    file = Path(folder, who)
                    file.write_text(json.dumps(lab.replies[who]))
                    spent = work(who, "cpu", url, REPLAYED, times=times, replies=str(file))
                    found["cpu_us"][who].append(spent)
                    start = run(who, "starter.py", [], url, REPLAYED)
                    found["start_ms"][who].append(start)
                    start = run(who, "starter.py", [], url, REPLAYED, **SDK_NEEDED)
                    found["start_sdk_ms"][who].append(start)
    return {
        name: {who: medians(each) for who, each in both.items()} for name, both in found.items()
    }


def concurrency(lab: Lab) -> dict[str, dict[str, Any]]:
    """Acquires in a second against an engine that is some milliseconds away."""
    turns, seconds = (1, 2.0) if lab.quick else (3, 2.0)
    found: dict[str, dict[str, Any]] = {}
    for name, tasks, threads, entity in CROWDS:
        rates: dict[str, list[dict[str, Any]]] = {who: [] for who in PYTHON}
        options = {"tasks": tasks, "threads": threads, "entity": entity, "seconds": seconds}
        for _ in range(turns):
            for who in PYTHON:
                with lab.replay(who, DELAY) as url:
                    rates[who].append(work(who, "throughput", url, REPLAYED, **options))
        found[name] = {who: medians(each) for who, each in rates.items()}
    return found


def memory(lab: Lab) -> dict[str, Any]:
    """Bytes for an entity that was acquired for."""
    entities = 300 if lab.quick else 1_000
    return {who: lab.work(who, "memory", entities=entities) for who in PYTHON}


def layer_kb() -> float:
    """The Lambda layer, as it is built."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "layer.zip"
        command = [sys.executable, str(ROOT / "layers/build.py"), str(target)]
        subprocess.run(command, check=True, capture_output=True)
        return round(target.stat().st_size / 1024, 1)
