"""`make bench`: the cost of an acquire, and the race against the peer.

Everything is measured in one run on one machine, in turns, and compared by its ratio. The last
line that is printed is one JSON object with those ratios.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

import engine
from benchmarks import clients, entities, grid, overhead, page, rates, report, scenarios
from benchmarks.lab import HERE, ROOT, Lab

QUICK = ROOT / "build/bench"

# Wide enough for the tables where the output is not a terminal.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
Results = dict[str, Any]


def simulated_grid(lab: Lab) -> Results:
    """Several clients of one bucket, in virtual time."""
    logging.disable(logging.CRITICAL)
    cells = grid.grid(1_500 if lab.quick else 5_000, seeds=1 if lab.quick else 3)
    logging.disable(logging.NOTSET)
    return {
        "grid": [
            {
                "clients": cell.clients,
                "load": cell.load,
                "acquires": cell.acquires,
                "admitted": cell.admitted,
                "requests": cell.per_acquire,
            }
            for cell in cells
        ],
        "grid_mean": grid.mean(cells),
    }


def engine_grid(lab: Lab) -> Results:
    """Several clients of one bucket, on the engine."""
    rows = clients.table(lab)
    return {"clients": rows, "clients_mean": clients.means(rows)}


STEPS: dict[str, Callable[[Lab], Results]] = {
    "CPU and start": overhead.cpu_and_start,
    "throughput": lambda lab: {"throughput": overhead.concurrency(lab)},
    "scenarios": lambda lab: {"scenarios": scenarios.table(lab)},
    "aggregator": lambda lab: {"aggregator": scenarios.aggregator(lab)},
    "several clients": engine_grid,
    "memory and layer": lambda lab: {
        "memory": overhead.memory(lab),
        "layer_kb": overhead.layer_kb(),
    },
    "entities": lambda lab: {
        "entities": entities.table(lab),
        "entities_metered": entities.metered(),
    },
    "several clients, simulated": simulated_grid,
    "rates, simulated": lambda lab: {"rates": rates.table(quick=lab.quick)},
}


def measure(lab: Lab) -> Results:
    """Everything. What is timed goes first, before the engine has much to remember."""
    results: Results = {}
    for name, step in STEPS.items():
        began = time.monotonic()
        results |= step(lab)
        console.print(f"[dim]{name}: {time.monotonic() - began:.0f} s[/]")
    return results


def machine(command: str, seconds: float) -> dict[str, Any]:
    """Where it was measured."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "seconds": round(seconds),
        "command": command,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def main() -> int:
    """Run, show, store; 0 if it came to an end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: minutes")
    options = parser.parse_args()
    # Ended from outside, blocks are left as by an exception, and take their processes along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with engine.ministack() as running:
        os.environ.update(engine.environment(running.endpoint_url))
        results = measure(Lab(running.endpoint_url, quick=options.quick))
    command = "make bench QUICK=1" if options.quick else "make bench"
    results["machine"] = machine(command, time.monotonic() - began)
    results["ratios"] = report.ratios(results)
    report.show(results, console)
    if options.quick:
        # What the pages show is of a whole run.
        report.store(results, QUICK / "results.json", QUICK)
    else:
        report.store(results, HERE / "results.json", ROOT / "docs")
        page.write(results, ROOT / "docs/benchmarks.md", ROOT / "README.md")
    print(json.dumps(results["ratios"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
